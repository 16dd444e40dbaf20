"""``docs/commands.md`` against the trees of the commands themselves."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import cdui_develop.main
import cdui_setup.main
from codefyui_core.cli.context import Context
from codefyui_core.cli.errors import ExitCode
from codefyui_core.cli.root import make_root
from codefyui_core.cli.table import COMMANDS

TEXT = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
LAUNCHER = ("install", "update", "check", "test", "faults")


def flags(text: str) -> set[str]:
    """The flags in the first cells of a section's table."""
    cells = re.findall(r"^\| (`-.+?) \|", text, re.MULTILINE)
    return {flag for cell in cells for flag in re.findall(r"`(-[\w-]+)`", cell)}


def page() -> dict[str, set[str]]:
    """Command -> flags, as the page has them."""
    sections = re.split(r"^### `cdui ([^`]+)`\n", TEXT, flags=re.MULTILINE)[1:]
    named = zip(sections[::2], sections[1::2], strict=True)
    return {re.sub(r" \[?[A-Z]+\]?", "", name): flags(text.partition("\n## ")[0]) for name, text in named}


def tree(command: click.Command, path: str) -> Iterator[tuple[str, set[str]]]:
    """Every command that does something by itself, with its flags."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        options = [one for one in command.params if isinstance(one, click.Option)]
        yield path, {flag for one in options for flag in (*one.opts, *one.secondary_opts)}
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from tree(below, f"{path} {name}")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_its_section_with_all_flags(name: str) -> None:
    root = make_root({name: COMMANDS[name]})
    context = click.Context(root, obj=Context(environ={"CODEFYUI_PLUGINS_ONLY": "none"}))
    command = root.get_command(context, name)
    assert command is not None
    shown = {path: found for path, found in page().items() if path.split()[0] == name}
    assert shown == dict(tree(command, name))


def test_flags_before_any_command_are_shown() -> None:
    given = {flag for one in make_root({}).params for flag in one.opts}
    assert flags(TEXT.partition("\n## ")[0]) == given


def test_no_other_command_is_shown() -> None:
    assert {path.split()[0] for path in page()} == {*COMMANDS, *LAUNCHER}


def test_the_launchers_own_commands_have_their_flags() -> None:
    there = {**parsers(cdui_setup.main._parser()), **parsers(cdui_develop.main._parser())}
    del there["ensure"]  # the launcher's own first step
    assert {name: page()[name] for name in LAUNCHER} == there


def parsers(parser: argparse.ArgumentParser) -> dict[str, set[str]]:
    (commands,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    return {
        name: {flag for action in sub._actions for flag in action.option_strings} - {"-h", "--help"}
        for name, sub in commands.choices.items()
    }


def test_exit_statuses_are_all_explained() -> None:
    table = TEXT.partition("## Exit statuses")[2].partition("\n## ")[0]
    assert {int(number) for number in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == set(ExitCode)
