"""An example of a storage backend for CodefyUI."""
