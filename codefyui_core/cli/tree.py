"""What plugins get to add their commands: ``codefyui_core.plugin.Commands`` over a click group."""

import click

from ..errors import UsageProblem
from .options import json_option


class JsonGroup(click.Group):
    """A group whose commands all take ``--json``."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        if not isinstance(cmd, click.Group):
            _accept_json(cmd)
        super().add_command(cmd, name)


class CommandTree:
    """The command tree while plugins add to it."""

    def __init__(self, root: click.Group) -> None:
        self._root = root

    def group(self, *path: str) -> click.Group:
        """The group at ``path``, made where it isn't there yet.

        Raises: UsageProblem when a command that isn't a group is on the way.
        """
        group = self._root
        for depth, name in enumerate(path, start=1):
            group = _below(group, path[:depth], name)
        return group


def _below(group: click.Group, path: tuple[str, ...], name: str) -> click.Group:
    found = group.commands.get(name)
    if found is None:
        made = JsonGroup(name, help=f"Commands of plugins: {' '.join(path)}.")
        group.add_command(made)
        return made
    if not isinstance(found, click.Group):
        raise UsageProblem(f"cdui {' '.join(path)} is a command, so nothing can be added below it.")
    return found


def _accept_json(command: click.Command) -> None:
    if not any("--json" in parameter.opts for parameter in command.params):
        json_option(command)
