"""Processes of runs: supervisor, zygote, keeper, run process, and the helper that writes definitions down."""
