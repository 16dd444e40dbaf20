"""Node files of one's own: they come and change without a restart."""

import pytest
from e2e_site import Site, graph, metrics, wait_for

pytestmark = pytest.mark.service

FILE = """
from codefyui_core.plugin import DataType, Node, Port

class Mine(Node):
    type = "Mine"
    category = "Own"
    outputs = (Port(name="value", type=DataType.SCALAR),)
    cacheable = False

    def execute(self, inputs, params, context):
        context.metric("mine", {value}, 0)
        return {{"value": {value}}}
"""


def node_types(site: Site) -> set[str]:
    return {node["name"] for node in site.get("/api/nodes")}


def test_a_node_file_is_used_changed_and_forgotten_while_the_server_runs(site: Site) -> None:
    site.start_server()
    folder = site.data / "custom_nodes"
    assert "Mine" not in node_types(site)
    (folder / "mine.py").write_text(FILE.format(value=1.5))
    wait_for(lambda: "Mine" in node_types(site), 60, "the new node")
    row = next(node for node in site.get("/api/nodes") if node["name"] == "Mine")
    assert row["provider"] == "custom"
    first = site.submit(graph("Mine"))
    site.wait_status(first, "succeeded")
    assert metrics(site.events(first), "mine") == [1.5]

    (folder / "mine.py").write_text(FILE.format(value=2.5))
    second = site.submit(graph("Mine"))
    site.wait_status(second, "succeeded")
    assert metrics(site.events(second), "mine") == [2.5]

    (folder / "broken.py").write_text("raise RuntimeError('not today')")
    problems = wait_for(lambda: site.get("/api/plugins")["problems"], 60, "the broken file to be listed")
    assert any("broken.py" in problem["source"] for problem in problems)
    assert "Mine" in node_types(site)

    (folder / "mine.py").unlink()
    wait_for(lambda: "Mine" not in node_types(site), 60, "the node to be gone")
    with pytest.raises(Exception, match="Mine"):
        site.submit(graph("Mine"))
