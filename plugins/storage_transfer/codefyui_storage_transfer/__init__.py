"""The transfer backend: a run's files travel over HTTP, by the address that the agent dials anyway."""
