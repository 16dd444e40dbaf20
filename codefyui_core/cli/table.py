"""The built-in commands by name, without importing them."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Where a command lives."""

    module: str
    """Below ``codefyui_core.cli``; the command in it has the name of the command, with ``_`` for ``-``, and
    ``_command`` appended."""
    help: str
    open: bool = False
    """A group that plugins may add to; they are loaded before it is used."""


COMMANDS: Mapping[str, Entry] = {
    "agent": Entry(module="agent", help="Make this machine a worker."),
    "artifacts": Entry(module="artifacts", help="See, download and delete what runs recorded."),
    "bench": Entry(module="bench", help="Measure this checkout against baselines."),
    "graph": Entry(module="graph", help="Validate or run a graph file without a server."),
    "quickstart": Entry(
        module="quickstart", help="Start a server and a worker here, and train a model on it."
    ),
    "restart": Entry(module="restart", help="Restart the server; runs on workers go on."),
    "run": Entry(module="run", help="Queue a graph and follow it."),
    "settings": Entry(module="settings", help="Show every setting and where it comes from."),
    "start": Entry(module="start", help="Start the server."),
    "status": Entry(module="status", help="Show the server, its workers and its queue."),
    "stop": Entry(module="stop", help="Stop the server and this machine's own worker."),
    "workers": Entry(
        module="workers", help="See workers, make enrollment tokens, remove a worker.", open=True
    ),
    "plugin": Entry(module="plugin", help="See the installed plugins.", open=True),
}
