"""The direct connector: the agent dials the control plane's own address."""
