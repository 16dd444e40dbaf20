"""Setting up an installation: the environment, torch, the packages; resumable, one at a time."""
