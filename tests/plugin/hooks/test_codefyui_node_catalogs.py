"""The page of ``codefyui_node_catalogs``."""

from collections.abc import Callable
from pathlib import Path

from codefyui_core.loading import Registry, load_nodes
from codefyui_core.testing.node_context import execute


def test_the_documented_catalog_is_loaded_and_its_node_runs(
    documented: Callable[[str], Registry], tmp_path: Path
) -> None:
    found = load_nodes(documented("codefyui_node_catalogs"))
    assert list(found.nodes) == ["greeter:Greet"]
    node = found.nodes["greeter:Greet"].node
    assert execute(node, {"name": "you"}, root=tmp_path) == {"text": "Hello, you!"}
