"""What becomes of installed plugins, good and bad."""

import logging
from importlib.metadata import EntryPoint

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.loading import NameKind, load
from codefyui_core.loading.installed import installed
from codefyui_core.plugin import Plane, PluginState
from codefyui_core.testing.distributions import FakeSite

GOOD = """
from codefyui_core.plugin import Node, NodeCatalog, hookimpl

class Flowers(NodeCatalog):
    name = "flowers"
    title = "Flowers"

@hookimpl
def codefyui_node_catalogs():
    return [Flowers()]
"""

HEAD = "from codefyui_core.plugin import *\nfrom codefyui_core.plugin import hookimpl\n"


def test_a_good_plugin_is_listed_with_all_that_is_known_of_it(site: FakeSite) -> None:
    site.install("flower-pack", GOOD, plugin="flowers", version="2.1", commit="abc123")
    (info,) = load(plane=None, entry_points=site.entry_points()).plugins
    assert (info.entry_point, info.distribution, info.version) == ("flowers", "flower-pack", "2.1")
    assert (info.state, info.error, info.revision) == (PluginState.LOADED, "", "abc123")
    assert (info.brings, info.hooks) == (("catalog flowers",), ("codefyui_node_catalogs",))


def test_plugins_are_found_by_their_installation_alone(site: FakeSite) -> None:
    site.install("flower-pack", GOOD)
    registry = load(plane=Plane.AGENT)
    assert {"builtin", "flower_pack"} <= {info.entry_point for info in registry.plugins}
    assert registry.provider_of("flowers") == "flower-pack"


def test_what_each_run_asks_for_is_imported_once_for_all(site: FakeSite) -> None:
    """Modules of plugins, then what their catalogs name; none of a plugin that is off or broken."""
    site.install(
        "flower-pack", GOOD.replace('title = "Flowers"', 'title = "Flowers"\n    preload = ("numpy",)')
    )
    site.install("broken", "raise ImportError")
    site.install("off", GOOD.replace("flowers", "other"))
    registry = load(plane=None, entry_points=site.entry_points(), block=["off"])
    (point,) = [one for one in site.entry_points() if one.name == "flower_pack"]
    assert registry.preload == (point.module, "numpy")


def test_connectors_and_backends_are_found_by_name(site: FakeSite) -> None:
    site.install(
        "post", DESCRIBED.replace("# PART", "") + STORED.partition("hookimpl\n")[2].replace("PART", "")
    )
    registry = load(plane=None, entry_points=site.entry_points())
    assert registry.plugins[0].brings == ("connector pigeon", "storage tape")
    assert (list(registry.connectors), list(registry.backends)) == (["pigeon"], ["tape"])


@given(st.permutations(["a", "b", "c", "d"]))
def test_the_order_of_installation_changes_nothing(names: list[str]) -> None:
    found = [EntryPoint(name=name, group="codefyui", value=f"pack_{name}:absent") for name in names]
    assert [plugin.name for plugin in installed(found)] == ["a", "b", "c", "d"]
    assert [plugin.distribution for plugin in installed(found)] == ["pack_a", "pack_b", "pack_c", "pack_d"]


def test_plugins_are_read_in_name_order(site: FakeSite) -> None:
    for name in ("zinnia", "aster", "lily"):
        site.install(f"pack-{name}", GOOD.replace("flowers", name), plugin=name)
    registry = load(plane=None, entry_points=site.entry_points())
    assert [info.entry_point for info in registry.plugins] == ["aster", "lily", "zinnia"]
    assert [catalog.name for catalog in registry.catalogs] == ["aster", "lily", "zinnia"]


DESCRIBED = (
    HEAD
    + """
class C(Connector):
    name = "pigeon"
    title = "Pigeon"
    # PART
    def control(self, host): ...
    def agent(self, host): ...
@hookimpl
def codefyui_connectors(): return [C()]
"""
)
STORED = (
    HEAD
    + """
class B(StorageBackend):
    name = "tape"
    title = "Tape"
    kind = StorageKind.CARRIER
    preference = 1
    # PART
    def control(self, host): ...
    def agent(self, host): ...
@hookimpl
def codefyui_storage_backends(): return [B()]
"""
)

BROKEN = {
    "import": ("import nothing_of_that_name", "nothing_of_that_name"),
    "syntax": ("def (", "SyntaxError"),
    "exit": ("raise SystemExit(3)", "SystemExit"),
    "unknown_hook": (HEAD + "@hookimpl\ndef codefyui_weather(): return []", "codefyui_weather"),
    "arguments": (HEAD + "@hookimpl\ndef codefyui_connectors(app): return []", "app"),
    "raises": (HEAD + "@hookimpl\ndef codefyui_connectors(): raise KeyError('wires')", "KeyError: 'wires'"),
    "none": (HEAD + "@hookimpl\ndef codefyui_connectors(): return None", "answered None"),
    "text": (HEAD + "@hookimpl\ndef codefyui_connectors(): return 'ssh'", "'ssh'"),
    "not_one": (HEAD + "@hookimpl\ndef codefyui_connectors(): return [3]", "3, which is not a Connector"),
    "lazy": (HEAD + "@hookimpl\ndef codefyui_settings():\n yield 1/0", "ZeroDivisionError"),
    "name": (GOOD.replace('"flowers"', '"My Flowers"'), "'My Flowers'"),
    "no_title": (GOOD.replace('title = "Flowers"', "title = 5"), "title"),
    "namespace": (GOOD.replace('title = "Flowers"', 'namespace = "A:"'), "namespace"),
    "watch": (GOOD.replace('title = "Flowers"', 'watch = ("/tmp",)'), "watch"),
    "twice": (GOOD.replace("[Flowers()]", "[Flowers(), Flowers()]"), "same name"),
    "prefix": (
        HEAD
        + "class S(PluginSettings):\n    model_config = {'env_prefix': 'MY_'}\n    a: int = 1\n"
        + "@hookimpl\ndef codefyui_settings(): return [S]",
        "env_prefix",
    ),
    "alias": (
        HEAD
        + "from pydantic import Field\nclass S(PluginSettings):\n    a: int = Field(1, alias='B')\n"
        + "@hookimpl\ndef codefyui_settings(): return [S]",
        "alias",
    ),
    "no_protocol": (DESCRIBED.replace("# PART", "protocol = 'one'"), "protocol"),
    "no_form": (DESCRIBED.replace("(Connector)", "(LinkConnector)"), "form"),
    "abstract": (DESCRIBED.replace("def agent(self, host): ...", ""), "abstract"),
    "kind": (STORED.replace("StorageKind.CARRIER", "'carrier'"), "kind"),
    "preference": (STORED.replace("preference = 1", "preference = None"), "preference"),
    "ticket": (STORED.replace("# PART", "ticket = dict"), "a class derived from Ticket"),
    "fields": (STORED.replace("# PART", "worker_fields = ['a']"), "worker_fields"),
    "planes": (
        HEAD
        + "class S(PluginSettings):\n    planes = {'control'}\n"
        + "@hookimpl\ndef codefyui_settings(): return [S]",
        "Plane",
    ),
    "object": (HEAD + "@hookimpl\ndef codefyui_settings(): return [PluginSettings()]", "not a class"),
    "no_hook": ("def codefyui_connectors(): return []", "@hookimpl"),
    "two_of_one": (
        HEAD
        + "@hookimpl(specname='codefyui_connectors')\ndef a(): return []\n"
        + "@hookimpl(specname='codefyui_connectors')\ndef b(): return []\n",
        "twice",
    ),
    "wrapper": (HEAD + "@hookimpl(wrapper=True)\ndef codefyui_connectors():\n    return (yield)", "wrapper"),
}


@pytest.mark.parametrize(("source", "said"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_plugin_is_listed_as_failed_and_the_rest_loads(
    site: FakeSite, caplog: pytest.LogCaptureFixture, source: str, said: str
) -> None:
    site.install("broken-pack", source, plugin="broken")
    site.install("other-pack", GOOD.replace("flowers", "other"), plugin="other")
    with caplog.at_level(logging.ERROR):
        registry = load(plane=None, entry_points=site.entry_points())
    (failed,) = registry.failed
    assert (failed.entry_point, failed.state, failed.brings) == ("broken", PluginState.FAILED, ())
    assert said in failed.error
    assert "\n" not in failed.error
    assert [catalog.name for catalog in registry.catalogs] == ["other"]
    assert "broken-pack" in caplog.text


def test_a_wrong_answer_takes_the_plugins_other_answers_with_it(site: FakeSite) -> None:
    site.install("mixed", GOOD + "\n@hookimpl\ndef codefyui_connectors(): return [1]\n")
    registry = load(plane=None, entry_points=site.entry_points())
    assert registry.catalogs == ()
    assert registry.failed[0].hooks == ()


@pytest.mark.parametrize("name", ["flowers", "flower-pack", "Flower_Pack"])
def test_a_blocked_plugin_is_listed_and_never_imported(site: FakeSite, name: str) -> None:
    site.install("flower-pack", "raise SystemExit('imported')", plugin="flowers")
    registry = load(plane=None, block=[name], entry_points=site.entry_points())
    assert [(info.state, info.error) for info in registry.plugins] == [(PluginState.BLOCKED, "")]


def test_only_leaves_the_cores_own_in_place(site: FakeSite) -> None:
    site.install("flower-pack", GOOD, plugin="flowers")
    site.install("other-pack", GOOD, plugin="other")
    registry = load(plane=None, only=["flowers"])
    states = {info.entry_point: info.state for info in registry.plugins}
    assert states["builtin"] is states["flowers"] is PluginState.LOADED
    assert states["other"] is PluginState.BLOCKED


def test_a_name_in_a_switch_that_fits_nothing_is_logged(
    site: FakeSite, caplog: pytest.LogCaptureFixture
) -> None:
    load(plane=None, block=["flwers"], entry_points=site.entry_points())
    assert "flwers" in caplog.text


def test_a_plane_gets_the_settings_that_it_reads(site: FakeSite) -> None:
    site.install(
        "two",
        HEAD
        + """
class OfControl(PluginSettings):
    s3_bucket: str = ""

class OfBoth(PluginSettings):
    planes = frozenset({Plane.CONTROL, Plane.AGENT})
    s3_proxy: str = ""

@hookimpl
def codefyui_settings():
    return [OfControl, OfBoth]
""",
    )

    def names(plane: Plane | None) -> list[str]:
        return [cls.__name__ for cls in load(plane=plane, entry_points=site.entry_points()).settings]

    assert names(Plane.CONTROL) == names(None) == ["OfControl", "OfBoth"]
    assert names(Plane.AGENT) == ["OfBoth"]


def test_damaged_installer_records_cost_the_revision_alone(site: FakeSite) -> None:
    site.install("flower-pack", GOOD, commit="abc")
    (record,) = site.folder.glob("*.dist-info/direct_url.json")
    for text in ("{", "[]", '{"vcs_info": []}', '{"vcs_info": {"commit_id": 7}}', '{"dir_info": {}}'):
        record.write_text(text)
        (info,) = load(plane=None, entry_points=site.entry_points()).plugins
        assert (info.state, info.revision) == (PluginState.LOADED, "")


def test_marking_changes_what_is_listed(site: FakeSite) -> None:
    site.install("flower-pack", GOOD, plugin="flowers")
    registry = load(plane=None, entry_points=site.entry_points())
    assert registry.mark("flowers", PluginState.STARTING).state is PluginState.STARTING
    registry.charge("flowers", RuntimeError("no\nbucket"))
    assert [(one.state, one.error) for one in registry.failed] == [
        (PluginState.FAILED, "RuntimeError: no bucket")
    ]
    assert registry.mark("flowers", PluginState.LOADED).error == ""
    with pytest.raises(KeyError):
        registry.mark("roses", PluginState.OFF)


def test_the_owner_of_a_descriptor_can_be_charged(site: FakeSite) -> None:
    site.install("flower-pack", GOOD, plugin="flowers")
    registry = load(plane=None, entry_points=site.entry_points())
    assert registry.owner(NameKind.CATALOG, "flowers").entry_point == "flowers"
    with pytest.raises(KeyError):
        registry.owner(NameKind.CONNECTOR, "flowers")
