"""The mount backend: a network share that server and worker both have; nothing moves."""
