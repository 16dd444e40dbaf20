"""An example of a node pack for CodefyUI."""
