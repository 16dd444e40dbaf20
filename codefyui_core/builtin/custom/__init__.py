"""People's own node files: a watched folder, one file a node."""
