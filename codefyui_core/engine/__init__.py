"""Inside the run process: executes a plan; cache, capture, progress."""
