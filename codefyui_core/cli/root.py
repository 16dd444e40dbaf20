"""The root of the command tree: built-in commands by name, those of plugins when they are needed."""

from collections.abc import Iterator, Mapping
from copy import copy
from importlib import import_module

import click

from .._version import __version__
from .context import Context
from .options import json_option
from .table import COMMANDS, Entry
from .tree import CommandTree


class LazyCommand(click.Command):
    """Stands for a command whose module isn't imported yet."""

    def __init__(self, name: str, entry: Entry) -> None:
        super().__init__(name, help=entry.help, short_help=entry.help)
        self.entry = entry

    def load(self) -> click.Command:
        """The real one."""
        module = import_module(f"{__package__}.{self.entry.module}")
        command = getattr(module, f"{(self.name or '').replace('-', '_')}_command")
        if not isinstance(command, click.Command):
            raise TypeError(f"{module.__name__} has no command {self.name}")
        return _fresh(command)


def _fresh(command: click.Command) -> click.Command:
    """A tree of its own for each root: what plugins add to one stays out of the modules' groups."""
    if not isinstance(command, click.Group):
        return command
    group = copy(command)
    group.commands = {name: _fresh(one) for name, one in command.commands.items()}
    return group


class Root(click.Group):
    """Imports what the words on the command line ask for, and no more."""

    def add_lazy(self, entries: Mapping[str, Entry]) -> None:
        for name, entry in entries.items():
            self.add_command(LazyCommand(name, entry))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = self.commands.get(cmd_name)
        if command is None or (isinstance(command, LazyCommand) and command.entry.open):
            self._add_plugin_commands(ctx)
        self._load(cmd_name)
        return self.commands.get(cmd_name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        self._add_plugin_commands(ctx)
        return sorted(self.commands)

    def _add_plugin_commands(self, ctx: click.Context) -> None:
        if "plugins" in ctx.meta:
            return
        ctx.meta["plugins"] = True
        for name in self._open():
            self._load(name)
        ctx.ensure_object(Context).registry().add_commands(CommandTree(self))

    def _open(self) -> Iterator[str]:
        lazy = [command for command in self.commands.values() if isinstance(command, LazyCommand)]
        return (command.name or "" for command in lazy if command.entry.open)

    def _load(self, name: str) -> None:
        command = self.commands.get(name)
        if isinstance(command, LazyCommand):
            self.commands[name] = command.load()


def make_root(entries: Mapping[str, Entry] = COMMANDS) -> Root:
    """A fresh command tree."""

    @click.group(
        cls=Root,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="The launcher of a checkout also has: install, update, check, test.",
    )
    @click.version_option(__version__, message="%(version)s")
    @json_option
    def cdui() -> None:
        """Build and train models as node graphs, and run them on whatever GPUs you can log in to."""

    if not isinstance(cdui, Root):
        raise TypeError(cdui)
    cdui.add_lazy(entries)
    return cdui
