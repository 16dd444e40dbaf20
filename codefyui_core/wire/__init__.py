"""The messages between agent and control plane: their models, codec and versions. Pure."""
