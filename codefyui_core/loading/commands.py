"""Notices when a plugin's command takes the place of another, which click lets pass in silence."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .conflicts import CORE, NameKind, PluginConflict

if TYPE_CHECKING:
    import click

Path = tuple[str, ...]


class CommandWatch:
    """The command tree as it was before a plugin added to it, and who owns what in it."""

    def __init__(self, root: "click.Group") -> None:
        self._root = root
        self._known: dict[Path, tuple[click.Command, str]] = {
            path: (command, CORE) for path, command in _walk(root)
        }

    def look(self, distribution: str) -> None:
        """What is new since the last look is ``distribution``'s.

        Raises: PluginConflict when a name that was there now means another command.
        """
        for path, command in _walk(self._root):
            known, owner = self._known.setdefault(path, (command, distribution))
            if known is not command:
                raise PluginConflict(NameKind.COMMAND, " ".join(path), owner, distribution)


def _walk(group: "click.Group", above: Path = ()) -> Iterator[tuple[Path, "click.Command"]]:
    import click

    for name, command in group.commands.items():
        path = (*above, name)
        yield path, command
        if isinstance(command, click.Group):
            yield from _walk(command, path)
