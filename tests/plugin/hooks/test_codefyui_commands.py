"""The page of ``codefyui_commands``."""

from collections.abc import Callable
from types import SimpleNamespace

import click
from click.testing import CliRunner

from codefyui_core.loading import Registry


class OneGroup:
    def __init__(self) -> None:
        self.root = click.Group()
        self.root.add_command(click.Group("plugin"))

    def group(self, *path: str) -> click.Group:
        found: click.Command = self.root
        for name in path:
            assert isinstance(found, click.Group)
            found = found.commands[name]
        assert isinstance(found, click.Group)
        return found


def test_the_documented_command_is_added_and_runs(documented: Callable[[str], Registry]) -> None:
    cli = OneGroup()
    documented("codefyui_commands").add_commands(cli)
    context = SimpleNamespace(plugins=lambda: [1, 2, 3])
    result = CliRunner().invoke(cli.root, ["plugin", "count"], obj=context)
    assert (result.exit_code, result.output) == (0, "3\n")
