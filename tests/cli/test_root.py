"""The command tree: what it imports, and how plugins add to it."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import click
import pytest

from codefyui_core._version import __version__
from codefyui_core.cli.context import Context
from codefyui_core.cli.root import make_root
from codefyui_core.cli.table import COMMANDS
from codefyui_core.loading import PluginConflict, load


@pytest.mark.spec("install/version-command")
def test_version_is_the_bare_number(cdui) -> None:
    ran = cdui("--version")
    assert (ran.status, ran.out) == (0, f"{__version__}\n")
    assert [part.isdigit() for part in __version__.split(".")] == [True] * 3


def test_version_imports_neither_database_nor_server_nor_settings() -> None:
    code = (
        "import sys; from codefyui_core.cli.__main__ import main; main(['--version'])\n"
        "print([m for m in ('sqlalchemy', 'aiohttp', 'pydantic', 'pluggy', 'torch') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == f"{__version__}\n[]\n"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_of_the_table_is_there(name: str) -> None:
    root = make_root({name: COMMANDS[name]})
    context = click.Context(root, obj=Context(environ={"CODEFYUI_PLUGINS_ONLY": "none"}))
    command = root.get_command(context, name)
    assert command is not None
    assert command.name == name
    assert command.get_short_help_str()


def test_an_unknown_command_is_a_usage_error(cdui) -> None:
    ran = cdui("nonsense", CODEFYUI_PLUGINS_ONLY="none")
    assert ran.status == 2
    assert "No such command 'nonsense'" in ran.err


def test_plugin_list_shows_the_built_in_plugin(cdui) -> None:
    ran = cdui("plugin", "list")
    assert ran.status == 0
    assert ran.out.splitlines()[0].split() == ["NAME", "DISTRIBUTION", "VERSION", "STATE", "BRINGS"]
    assert any(line.startswith("builtin ") and "codefyui-core" in line for line in ran.out.splitlines())


def test_plugin_list_as_json_is_one_line(cdui) -> None:
    import json

    ran = cdui("plugin", "list", "--json")
    (line,) = ran.out.splitlines()
    names = [plugin["entry_point"] for plugin in json.loads(line)["plugins"]]
    assert "builtin" in names


class FakeContext(Context):
    """Loads what the test installs."""

    def __init__(self, *modules: str) -> None:
        super().__init__(environ={})
        self._entries = [EntryPoint(name, name, "codefyui") for name in modules]

    def registry(self):
        return load(plane=None, entry_points=self._entries)


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch):
    """Install a module whose hook adds commands."""
    import types

    from codefyui_core.plugin import hookimpl

    def make(name: str, add) -> str:
        module = types.ModuleType(name)

        @hookimpl
        def codefyui_commands(cli):
            add(cli)

        codefyui_commands.__module__ = name
        module.codefyui_commands = codefyui_commands
        monkeypatch.setitem(sys.modules, name, module)
        return name

    return make


def hello(group: str, name: str):
    def add(cli) -> None:
        @cli.group(*group.split()).command(name)
        @click.pass_obj
        def command(context: Context) -> None:
            click.echo(f"hello json={context.as_json}")

    return add


def test_a_plugin_adds_a_command_to_a_new_group(plugin, capsys: pytest.CaptureFixture[str]) -> None:
    context = FakeContext(plugin("hello_plugin", hello("greet now", "me")))
    root = make_root({})
    assert root.main(["greet", "now", "me", "--json"], obj=context, standalone_mode=False) is None
    assert capsys.readouterr().out == "hello json=True\n"


def test_a_plugin_adds_a_command_to_a_built_in_group(plugin, capsys: pytest.CaptureFixture[str]) -> None:
    context = FakeContext(plugin("hello_plugin", hello("plugin", "greet")))
    make_root().main(["plugin", "greet"], obj=context, standalone_mode=False)
    assert capsys.readouterr().out == "hello json=False\n"


def test_a_plugin_that_takes_a_built_in_name_stops_the_command(plugin) -> None:
    def take(cli) -> None:
        cli.group().add_command(click.Command("plugin"))

    context = FakeContext(plugin("rude_plugin", take))
    with pytest.raises(PluginConflict, match="plugin"):
        make_root().main(["--help"], obj=context, standalone_mode=False)
