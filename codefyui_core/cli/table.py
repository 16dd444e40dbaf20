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
    "plugin": Entry(module="plugin", help="See the installed plugins.", open=True),
}
