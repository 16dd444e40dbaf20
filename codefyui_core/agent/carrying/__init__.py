"""Carries the files of runs to this machine and back: the only place that waits and tries again."""
