"""The control plane: database, queue, line to the agents, HTTP interface. Never imports torch or a node class."""
