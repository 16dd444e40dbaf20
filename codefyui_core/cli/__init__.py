"""The command line: one file a command group, each imported only when it is used."""
