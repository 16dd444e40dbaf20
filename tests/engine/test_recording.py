"""Which nodes of a run are recorded."""

import pytest

from codefyui_core.engine import Limits, Recorder, ResultCache
from codefyui_core.outputs import Index, OutputStore


class Records:
    """Runs graphs with ``record_outputs``, and shows what they recorded."""

    def __init__(self, engine, folder):
        self.engine = engine
        self.store = OutputStore(folder / "recorded", limit_bytes=0)

    def run(self, document, **options):
        recorder = Recorder(self.store, "r", Limits())
        lines = self.engine.run(document, recorder=recorder, record_outputs=True, **options)
        recorder.write()
        index = Index.model_validate_json((self.store.folder("r") / "index.json").read_bytes())
        return lines, {node.node_id: node for node in index.nodes if node.node_id != "start"}


@pytest.fixture
def records(engine, tmp_path):
    return Records(engine, tmp_path)


def values(nodes, port="out"):
    return {node_id: one.value for node_id, node in nodes.items() for one in node.ports if one.port == port}


def test_every_port_of_every_node_that_ran_is_recorded(records, graph):
    lines, nodes = records.run(graph({"n": ("Number", {"value": 2.0}), "s": "Sum"}, ["n.out > s.a"]))
    assert values(nodes) == {"n": 2.0, "s": 2.0}
    assert nodes["s"].type == "Sum"
    assert not lines.events("run_warning")


def test_a_run_that_fails_keeps_what_came_before_the_failure(records, graph):
    lines, nodes = records.run(
        graph({"n": "Number", "f": "Fail", "s": "Sum"}, ["n.out > f.a", "f.out > s.a"])
    )
    assert lines.outcome["outcome"] == "failed"
    assert set(nodes) == {"n"}


def test_results_from_the_cache_are_recorded_too(records, graph):
    cache = ResultCache(entries=10, bytes=0)
    document = graph({"n": ("Number", {"value": 3.0})})
    records.run(document, cache=cache)
    lines, nodes = records.run(document, cache=cache)
    assert lines.statuses("n")[-1] == "cached"
    assert values(nodes) == {"n": 3.0}


def test_nodes_of_a_preset_are_recorded_one_by_one_and_name_their_container(records, graph):
    preset = {
        "preset_name": "P",
        "category": "Test",
        "nodes": [{"id": "s", "type": "Sum", "params": {"extra": 4.0}}],
        "edges": [],
        "exposed_inputs": [{"name": "x", "internal_node": "s", "internal_port": "a"}],
        "exposed_outputs": [{"name": "y", "internal_node": "s", "internal_port": "out"}],
        "exposed_params": [],
    }
    _, nodes = records.run(graph({"n": "Number", "p": "preset:P"}, ["n.out > p.x"], presets=[preset]))
    assert values(nodes) == {"n": 1.0, "p__s": 5.0}
    assert nodes["p__s"].container == "p"


def test_what_a_node_runs_inside_of_itself_is_its_own(records, graph):
    preset = {
        "preset_name": "P",
        "category": "Test",
        "nodes": [{"id": "s", "type": "Sum", "params": {}}],
        "edges": [],
        "exposed_inputs": [{"name": "x", "internal_node": "s", "internal_port": "a"}],
        "exposed_outputs": [{"name": "y", "internal_node": "s", "internal_port": "out"}],
        "exposed_params": [],
    }
    _, nodes = records.run(graph({"i": "Items", "m": "Each"}, ["i.out > m.items"], presets=[preset]))
    assert set(nodes) == {"i", "m"}
    assert nodes["m"].ports[0].length == 3
