"""Node classes of all catalogs in one namespace."""

import pytest

from codefyui_core.loading import PluginConflict, Registry, load, load_nodes
from codefyui_core.testing.distributions import FakeSite

PACK = """
from codefyui_core.plugin import Node, NodeCatalog, CatalogProblem, hookimpl

class Add(Node):
    type = "Add"
    category = "Math"
    def execute(self, inputs, params, context): return {}

class Broken(Node):
    type = "Broken"
    def execute(self, inputs, params, context): return {}

class Pack(NodeCatalog):
    name = "NAME"
    namespace = NAMESPACE
    gives_way = False
    def nodes(self):
        yield Add

@hookimpl
def codefyui_node_catalogs(): return [Pack()]
"""


def _install(site: FakeSite, name: str, namespace: str = '""', **changes: str) -> None:
    source = PACK.replace("NAME", name, 1).replace("NAMESPACE", namespace)
    for old, new in changes.items():
        source = source.replace({"ask": "yield Add", "gives_way": "gives_way = False"}[old], new)
    site.install(f"pack-{name}", source, plugin=name)


def _registry(site: FakeSite) -> Registry:
    return load(plane=None, entry_points=site.entry_points())


def test_types_carry_the_namespace_of_their_catalog(site: FakeSite) -> None:
    _install(site, "bare")
    _install(site, "own", "None")
    _install(site, "other", '"another"')
    found = load_nodes(_registry(site))
    assert set(found.nodes) == {"Add", "own:Add", "another:Add"}
    assert found.nodes["own:Add"].provider == "pack-own"
    assert found.nodes["own:Add"].node.__module__ == "pack_own"
    assert found.problems == ()


def test_single_catalogs_can_be_asked(site: FakeSite) -> None:
    _install(site, "bare")
    _install(site, "own", "None")
    assert set(load_nodes(_registry(site), ["own"]).nodes) == {"own:Add"}


def test_two_distributions_with_one_bare_type_stop_the_start(site: FakeSite) -> None:
    _install(site, "left")
    _install(site, "right")
    with pytest.raises(PluginConflict, match=r"pack-left.*pack-right"):
        load_nodes(_registry(site))


def test_a_catalog_that_gives_way_leaves_out_what_is_taken(site: FakeSite) -> None:
    _install(site, "a", gives_way="gives_way = True")
    _install(site, "b")
    found = load_nodes(_registry(site))
    assert found.nodes["Add"].provider == "pack-b"
    (problem,) = found.problems
    assert problem.source.endswith("pack_a.py")
    assert "pack-b" in problem.message


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        ("yield Add; 1/0", "ZeroDivisionError"),
        ("yield Add; raise SystemExit(2)", "SystemExit"),
        ("yield Add; yield 3", "3 is neither"),
        ("yield Add; yield Broken", "category"),
        ("yield Add; yield CatalogProblem(source='x.py', message='no numpy')", "no numpy"),
    ],
)
def test_what_gives_no_node_is_a_problem_and_the_rest_loads(site: FakeSite, ask: str, said: str) -> None:
    _install(site, "left", "None", ask=ask)
    _install(site, "right")
    found = load_nodes(_registry(site))
    assert set(found.nodes) == {"left:Add", "Add"}
    (problem,) = found.problems
    assert said in problem.message
