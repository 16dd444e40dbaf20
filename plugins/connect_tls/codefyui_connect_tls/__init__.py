"""The TLS connector: the agent dials a proxy's ``https://`` address, and checks its certificate or the pin of its key."""
