"""One owner for every name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.loading import NameKind, PluginConflict, RouteProblem, check_node_types, check_routes, load
from codefyui_core.plugin import Auth, Route
from codefyui_core.testing.distributions import FakeSite

HEAD = "from codefyui_core.plugin import *\nfrom codefyui_core.plugin import hookimpl\n"

CATALOG = (
    HEAD
    + """
class C(NodeCatalog):
    name = "iris"
@hookimpl
def codefyui_node_catalogs(): return [C()]
"""
)
CONNECTOR = (
    HEAD
    + """
import click
class C(Connector):
    name = "NAME"
    title = "t"
    def agent_options(self): return [click.Option(["--pin"])]
    def control(self, host): ...
    def agent(self, host): ...
@hookimpl
def codefyui_connectors(): return [C()]
"""
)
BACKEND = (
    HEAD
    + """
class B(StorageBackend):
    name = "NAME"
    title = "t"
    kind = StorageKind.CARRIER
    preference = 5
    worker_fields = ("FIELD",)
    def control(self, host): ...
    def agent(self, host): ...
@hookimpl
def codefyui_storage_backends(): return [B()]
"""
)
SETTINGS = (
    HEAD
    + """
class S(PluginSettings):
    shared_name: int = 1
@hookimpl
def codefyui_settings(): return [S]
"""
)

CLAIMS = {
    NameKind.CATALOG: (CATALOG, CATALOG, "iris"),
    NameKind.CONNECTOR: (CONNECTOR.replace("NAME", "pigeon"),) * 2 + ("pigeon",),
    NameKind.BACKEND: (
        BACKEND.replace("NAME", "tape").replace("FIELD", "one"),
        BACKEND.replace("NAME", "tape").replace("FIELD", "two"),
        "tape",
    ),
    NameKind.WORKER_FIELD: (
        BACKEND.replace("NAME", "tape").replace("FIELD", "reels"),
        BACKEND.replace("NAME", "disk").replace("FIELD", "reels"),
        "reels",
    ),
    NameKind.SETTING: (SETTINGS, SETTINGS, "CODEFYUI_SHARED_NAME"),
}


@pytest.mark.parametrize("kind", CLAIMS)
def test_two_distributions_that_claim_one_name_stop_the_start(site: FakeSite, kind: NameKind) -> None:
    first, second, name = CLAIMS[kind]
    site.install("left-pack", first, plugin="left")
    site.install("right-pack", second, plugin="right")
    with pytest.raises(PluginConflict, match=r"left-pack.*right-pack") as caught:
        load(plane=None, entry_points=site.entry_points())
    assert (caught.value.kind, caught.value.name) == (kind, name)
    assert caught.value.code == "plugin.conflict"
    assert f"{kind.value} {name}" in caught.value.message


def test_blocking_one_of_them_ends_the_conflict(site: FakeSite) -> None:
    site.install("left-pack", CATALOG, plugin="left")
    site.install("right-pack", CATALOG, plugin="right")
    registry = load(plane=None, block=["left-pack"], entry_points=site.entry_points())
    assert registry.provider_of("iris") == "right-pack"


def test_two_distributions_with_one_entry_point_name_conflict(site: FakeSite) -> None:
    site.install("left-pack", CATALOG, plugin="same")
    site.install("right-pack", CATALOG.replace("iris", "rose"), plugin="same")
    with pytest.raises(PluginConflict, match="plugin same"):
        load(plane=None, entry_points=site.entry_points())
    registry = load(plane=None, block=["left-pack"], entry_points=site.entry_points())
    assert len(registry.plugins) == 2


def test_a_failed_plugin_claims_nothing(site: FakeSite) -> None:
    site.install("left-pack", CATALOG + "\n1/0\n", plugin="left")
    site.install("right-pack", CATALOG, plugin="right")
    assert load(plane=None, entry_points=site.entry_points()).provider_of("iris") == "right-pack"


def test_names_that_the_core_holds_are_reserved(site: FakeSite) -> None:
    site.install("right-pack", SETTINGS, plugin="right")
    reserved = {NameKind.SETTING: {"CODEFYUI_SHARED_NAME"}}
    with pytest.raises(PluginConflict, match=r"codefyui-core.*right-pack"):
        load(plane=None, entry_points=site.entry_points(), reserved=reserved)


def test_options_with_two_owners_conflict_and_know_their_owner(site: FakeSite) -> None:
    site.install("left-pack", CONNECTOR.replace("NAME", "pigeon"), plugin="left")
    registry = load(plane=None, entry_points=site.entry_points())
    (option,) = registry.agent_options()
    assert (option.descriptor, option.kind, option.distribution) == (
        "pigeon",
        NameKind.CONNECTOR,
        "left-pack",
    )
    with pytest.raises(PluginConflict, match="codefyui-core"):
        registry.agent_options(reserved={NameKind.OPTION: {"--pin"}})
    site.install("right-pack", CONNECTOR.replace("NAME", "owl"), plugin="right")
    with pytest.raises(PluginConflict, match=r"left-pack.*right-pack"):
        load(plane=None, entry_points=site.entry_points()).agent_options()


@pytest.mark.parametrize("wrong", ["[3]", "1/0", "None"])
def test_wrong_options_are_charged_to_their_plugin(site: FakeSite, wrong: str) -> None:
    site.install("left-pack", CONNECTOR.replace("NAME", "pigeon"), plugin="left")
    site.install(
        "right-pack",
        CONNECTOR.replace("NAME", "owl").replace('[click.Option(["--pin"])]', wrong),
        plugin="right",
    )
    registry = load(plane=None, entry_points=site.entry_points())
    assert [option.distribution for option in registry.agent_options()] == ["left-pack"]
    assert [info.entry_point for info in registry.failed] == ["right"]


async def _never(request: object, caller: object) -> None:
    raise AssertionError("no request is made")


def _route(path: str, method: str = "GET", auth: Auth = Auth.SESSION) -> Route:
    return Route(method=method, path=path, handler=_never, auth=auth)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/api/x", "/api/x"),
        ("/api/x", "/api/x/"),
        ("/api/runs/{run_id}/f", "/api/runs/{id}/f"),
        ("/api/f/{name:.*}", "/api/f/{path:.*}"),
        ("/api/f/{name:[a-f]{3}}", "/api/f/{path:[a-f]{3}}"),
    ],
)
def test_routes_that_fit_the_same_requests_conflict(one: str, other: str) -> None:
    with pytest.raises(PluginConflict, match=r"left-pack.*right-pack"):
        check_routes([("left-pack", _route(one)), ("right-pack", _route(other, method="get"))])


_PART = st.text("abcxyz-_.", min_size=1, max_size=6)
_NAME = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)


@given(st.lists(st.one_of(_PART, st.none()), min_size=1, max_size=5), st.data())
def test_the_names_of_variables_never_tell_two_routes_apart(
    parts: list[str | None], data: st.DataObject
) -> None:
    def path() -> str:
        words = [f"{{{data.draw(_NAME)}}}" if part is None else part for part in parts]
        return "/api/" + "/".join(words)

    with pytest.raises(PluginConflict):
        check_routes([("left-pack", _route(path())), ("right-pack", _route(path()))])


def test_routes_that_differ_are_fine() -> None:
    check_routes(
        [
            ("codefyui-core", _route("/ws/worker")),
            ("left-pack", _route("/api/x")),
            ("left-pack", _route("/api/x", method="POST")),
            ("right-pack", _route("/api/x/{name:\\d+}")),
            ("right-pack", _route("/api/x/{name}")),
        ]
    )


@pytest.mark.parametrize(
    "route",
    [_route("/files"), _route("/api/x", method="STEAL"), _route("/api/x/{id}", auth=Auth.RUN_WORKER)],
)
def test_a_route_of_a_wrong_shape_names_its_owner(route: Route) -> None:
    with pytest.raises(RouteProblem, match="left-pack"):
        check_routes([("left-pack", route)])


def test_node_types_have_one_owner() -> None:
    check_node_types([("left-pack", "Add"), ("left-pack", "Sub"), ("right-pack", "right:Add")])
    with pytest.raises(PluginConflict, match=r"node type Add .*left-pack.*right-pack"):
        check_node_types([("left-pack", "Add"), ("right-pack", "Add")])
