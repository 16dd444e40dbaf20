"""Files of the data folder: uploads, graph files, what a run uses."""
