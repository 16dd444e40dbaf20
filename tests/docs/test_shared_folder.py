"""The page's example of a shared folder does what it says, and its messages are the backend's own."""

import re
import shlex
from pathlib import Path, PurePosixPath

import click
import pytest

from codefyui_core.cli.context import Context
from codefyui_core.cli.root import make_root
from codefyui_core.cli.table import COMMANDS
from codefyui_core.loading import load
from codefyui_core.plugin import Family, Plane
from codefyui_core.settings import Install, describe
from codefyui_core.settings.layers import Layers

DOCS = Path(__file__).parents[2] / "docs"
SECTION = re.search(
    r"^## A shared folder\n(.*?)(?=^## |\Z)", (DOCS / "storage.md").read_text(), re.MULTILINE | re.DOTALL
)
PLUGINS = ("builtin", "storage_mount")
ENVIRON = {"CODEFYUI_PLUGINS_ONLY": ",".join(PLUGINS)}


def example() -> list[list[str]]:
    """The commands of the NFS example, as words."""
    assert SECTION is not None
    block = re.search(r"```sh\n(.*?)```", SECTION[1], re.DOTALL)
    assert block is not None
    return [words for line in block[1].splitlines() if (words := shlex.split(line, comments=True))]


def parsed(words: list[str]) -> dict[str, object]:
    """The values of ``cdui ...`` by the parser of the command itself."""
    context = click.Context(make_root(COMMANDS), obj=Context(environ=ENVIRON))
    command: click.Command = context.command
    rest = words
    while isinstance(command, click.Group):
        found = command.get_command(context, rest[0])
        assert found is not None
        command, rest = found, rest[1:]
        context = click.Context(command, parent=context)
    return command.make_context(command.name or "", rest, parent=context.parent).params


@pytest.mark.spec("mount/docs-nfs-example")
def test_the_servers_folders_and_the_workers_mount_are_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = example()
    (mount,) = (one for one in words if one[:2] == ["sudo", "mount"])
    exported = dict(text.split("=", 1) for one in words if one[0] == "export" for text in one[1:])
    starts = [one[1:] for one in words if one[0] == "cdui"]
    here = mount[-1]
    assert (mount[2:4], parsed(starts[0])["project"]) == (["-t", "nfs"], None)

    install = Install.find(environ={**exported, "CODEFYUI_USER_DATA_DIR": str(tmp_path)}, home=tmp_path)
    folders = install.folders()
    families = (Family.FILES, Family.IMAGES, Family.MODELS, Family.MEDIA)
    assert [folders.of(family) for family in families] == [Path(here, "data", one.value) for one in families]
    backend = load(plane=Plane.AGENT, only=PLUGINS).backends["mount"]

    monkeypatch.setattr("codefyui_storage_mount.options.is_folder", lambda path: True)
    given = parsed(starts[1])
    settled = backend.settle({"mount": given["mount"]}, {})
    assert SECTION is not None
    there = re.search(r"on the worker's, at (\S+)", SECTION[1])
    assert there is not None
    assert settled == {"mounts": {"data": str(PurePosixPath(there[1], "data"))}}


def test_the_label_and_the_flag_have_their_rows() -> None:
    registry = load(plane=Plane.CONTROL, only=PLUGINS)
    (row,) = describe(registry.settings[0], Layers())
    assert f"| `{row.name}` | `{row.default}` |" in (DOCS / "settings.md").read_text()
    (option,) = registry.agent_options()
    flag = f"| `codefyui-storage-mount` | `{option.option.opts[0]} {option.option.metavar}` |"
    assert flag in (DOCS / "commands.md").read_text()


def test_the_marker_has_the_name_that_the_page_gives() -> None:
    marker = pytest.importorskip("codefyui_storage_mount.marker").MARKER
    assert SECTION is not None
    assert f"`{marker}`" in SECTION[1]
