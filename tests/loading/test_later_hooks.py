"""Hooks that are asked when the moment comes: commands, the web root, observers."""

from datetime import UTC, datetime
from pathlib import Path

import click
import pytest

from codefyui_core.loading import PluginConflict, Registry, load
from codefyui_core.plugin import RunChanged, RunId, RunStatus, RunView
from codefyui_core.testing.distributions import FakeSite

HEAD = "from codefyui_core.plugin import hookimpl\nimport pathlib\nseen = []\n"


class Tree:
    """``Commands`` over a click group."""

    def __init__(self) -> None:
        self.root = click.Group("cdui")
        self.root.add_command(click.Command("start"))

    def group(self, *path: str) -> click.Group:
        found = self.root
        for name in path:
            below = found.commands.get(name)
            if below is None:
                below = click.Group(name)
                found.add_command(below)
            assert isinstance(below, click.Group)
            found = below
        return found


def _registry(site: FakeSite, **sources: str) -> Registry:
    for name, source in sources.items():
        site.install(f"pack-{name}", HEAD + source, plugin=name)
    return load(plane=None, entry_points=site.entry_points())


def _adding(path: str, name: str) -> str:
    return (
        "import click\n@hookimpl\ndef codefyui_commands(cli):\n"
        f"    cli.group({path}).add_command(click.Command({name!r}))\n"
    )


def test_every_plugin_adds_its_commands(site: FakeSite) -> None:
    tree = Tree()
    registry = _registry(site, a=_adding('"workers", "add"', "ssh"), b=_adding('"workers"', "tidy"))
    registry.add_commands(tree)
    assert set(tree.group("workers").commands) == {"add", "tidy"}
    assert set(tree.group("workers", "add").commands) == {"ssh"}


@pytest.mark.parametrize(
    ("first", "name", "owners"),
    [("other", "start", r"codefyui-core.*pack-b"), ("same", "same", r"pack-a.*pack-b")],
)
def test_a_command_that_takes_the_place_of_another_is_a_conflict(
    site: FakeSite, first: str, name: str, owners: str
) -> None:
    registry = _registry(site, a=_adding("", first), b=_adding("", name))
    with pytest.raises(PluginConflict, match=owners):
        registry.add_commands(Tree())


def test_a_plugin_that_fails_to_add_commands_costs_its_own_only(site: FakeSite) -> None:
    tree = Tree()
    registry = _registry(
        site, a="@hookimpl\ndef codefyui_commands(cli): 1/0\n", b=_adding('"workers"', "tidy")
    )
    registry.add_commands(tree)
    assert [info.entry_point for info in registry.failed] == ["a"]
    assert "tidy" in tree.group("workers").commands


def test_the_first_web_root_in_name_order_wins(site: FakeSite) -> None:
    registry = _registry(
        site,
        a="@hookimpl\ndef codefyui_web_root(): return None\n",
        b="@hookimpl\ndef codefyui_web_root(): return pathlib.Path('/b')\n",
        c="@hookimpl\ndef codefyui_web_root(): return pathlib.Path('/c')\n",
    )
    assert registry.web_root() == Path("/b")


def test_a_wrong_web_root_is_charged_and_the_next_one_is_asked(site: FakeSite) -> None:
    registry = _registry(
        site,
        a="@hookimpl\ndef codefyui_web_root(): return '/a'\n",
        b="@hookimpl\ndef codefyui_web_root(): 1/0\n",
        c="@hookimpl\ndef codefyui_web_root(): return pathlib.Path('/c')\n",
    )
    assert registry.web_root() == Path("/c")
    assert [info.entry_point for info in registry.failed] == ["a", "b"]


def test_without_a_web_root_there_is_none(site: FakeSite) -> None:
    assert _registry(site).web_root() is None


def test_observers_are_told_one_by_one_and_can_stop_nothing(
    site: FakeSite, caplog: pytest.LogCaptureFixture
) -> None:
    registry = _registry(
        site,
        a="@hookimpl\ndef codefyui_observe(fact): seen.append(fact); 1/0\n",
        b="@hookimpl\ndef codefyui_observe(fact): seen.append(fact)\n",
    )
    run = RunView(id=RunId("1"), name="r", status=RunStatus.SUCCEEDED)
    facts = [RunChanged(run=run, at=datetime(2026, 1, 1, tzinfo=UTC)) for _ in range(2)]
    for fact in facts:
        registry.observe(fact)
    import pack_a  # type: ignore[import-not-found]
    import pack_b  # type: ignore[import-not-found]

    assert pack_a.seen == pack_b.seen == facts
    assert registry.failed == ()
    assert caplog.text.count("ZeroDivisionError") == 2
