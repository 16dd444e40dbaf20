"""The local storage backend: runs on the server's own machine work in the server's folders."""
