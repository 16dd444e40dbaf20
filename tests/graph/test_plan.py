"""What runs, and in what order."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.graph import Definitions, Document, GraphInvalid, Source, expand, plan, preset_plan


def planned(document, definitions):
    return plan(expand(document, definitions), definitions)


def test_levels_follow_the_wires(write, definitions):
    document = write.graph(
        {"go": "Start", "a": "Make", "b": "Make", "c": "Add", "p": "Print"},
        ["go!a", "go!b", "a.tensor>c.a", "b.tensor>c.b", "c.tensor>p.value"],
    )
    result = planned(document, definitions)
    assert result.levels == (("go", "a", "b"), ("c",), ("p",))
    assert result.nodes["c"].inputs == {
        "a": Source(node_id="a", port="tensor"),
        "b": Source(node_id="b", port="tensor"),
    }


def test_params_are_complete_and_of_their_kind(write, definitions):
    nodes = [
        write.node("go", "Start"),
        write.node("m", "Make"),
        write.node("s", "Scale", factor=2, count=3.0, mode=None, odd=1),
    ]
    node = planned(write.graph(nodes, ["go!m", "m.tensor>s.tensor"]), definitions).nodes["s"]
    assert node.params == {"factor": 2.0, "count": 3, "mode": "fast", "on": True, "grid": None}
    assert (type(node.params["factor"]), type(node.params["count"])) == (float, int)


def test_a_plan_node_has_its_definition_and_repeated_ports(write, definitions):
    nodes = [write.node("go", "Start"), write.node("m", "Make"), write.node("s", "Split", chunks=3)]
    node = planned(write.graph(nodes, ["go!m", "m.tensor>s.tensor"]), definitions).nodes["s"]
    assert node.outputs == ("chunk_0", "chunk_1", "chunk_2")
    assert [port.name for port in node.input_ports] == ["tensor"]
    assert node.definition is definitions.find("Split")


def test_a_bare_name_is_planned_as_the_type_that_it_means(write, definitions):
    document = write.graph({"go": "Start", "m": "Make", "x": "Press"}, ["go!m", "m.tensor>x.tensor"])
    assert planned(document, definitions).nodes["x"].type == "botany:Press"


def test_only_what_a_start_reaches_runs(write, definitions):
    document = write.graph(
        {"go": "Start", "a": "Make", "p": "Print", "x": "Make", "y": "Print"},
        ["go!a", "a.tensor>p.value", "x.tensor>y.value"],
    )
    assert set(planned(document, definitions).nodes) == {"go", "a", "p"}


def test_what_feeds_a_running_node_runs_too_until_nothing_is_missing(write, definitions):
    document = write.graph(
        {"go": "Start", "a": "Make", "b": "Make", "c": "Pass", "d": "Add", "other": "Print"},
        ["go!a", "a.tensor>d.a", "b.tensor>c.tensor", "c.tensor>d.b", "b.tensor>other.value"],
    )
    assert set(planned(document, definitions).nodes) == {"go", "a", "b", "c", "d"}


def test_a_container_that_feeds_runs_as_a_whole(write, definitions):
    document = write.graph(
        {"go": "Start", "a": "Make", "m": "Make", "t": "preset:Twice", "d": "Add"},
        ["go!a", "a.tensor>d.a", "m.tensor>t.x", "t.y>d.b"],
    )
    assert set(planned(document, definitions).nodes) == {
        "go",
        "a",
        "d",
        "m",
        "t__first",
        "t__second",
        "t__side",
    }


def test_a_container_that_is_reached_runs_as_a_whole_with_what_follows_any_of_it(write, definitions):
    two = write.preset(
        "Two", {"a": "Pass", "b": "Make"}, [], ["x=a.tensor"], ["fed=a.tensor", "own=b.tensor"]
    )
    document = write.graph(
        {"go": "Start", "m": "Make", "t": "preset:Two", "p": "Print"},
        ["go!m", "m.tensor>t.x", "t.own>p.value"],
        presets=[two],
    )
    result = planned(document, definitions)
    assert set(result.nodes) == {"go", "m", "t__a", "t__b", "p"}
    assert result.nodes["t__b"].container == "t"


def test_a_start_that_starts_nothing_does_not_run(write, definitions):
    document = write.graph({"go": "Start", "idle": "Start", "a": "Make"}, ["go!a"])
    assert set(planned(document, definitions).nodes) == {"go", "a"}


def test_nothing_started_is_refused(write, definitions):
    with pytest.raises(GraphInvalid) as caught:
        planned(write.graph({"go": "Start", "a": "Make"}), definitions)
    assert [issue.code for issue in caught.value.issues] == ["no_entry_points"]


def test_a_cycle_and_an_unknown_type_are_refused(write, definitions):
    with pytest.raises(GraphInvalid) as caught:
        planned(write.graph({"go": "Start", "a": "Pass"}, ["go!a", "a.tensor>a.tensor"]), definitions)
    assert [issue.code for issue in caught.value.issues] == ["cycle"]
    with pytest.raises(GraphInvalid) as caught:
        planned(write.graph({"go": "Start", "a": "Gone"}, ["go!a"]), definitions)
    assert [issue.code for issue in caught.value.issues] == ["unknown_node_type"]


def test_a_chain_of_thousands_of_nodes_is_planned_without_recursion(write, definitions):
    names = [f"n{n}" for n in range(5000)]
    edges = [f"{a}.tensor>{b}.tensor" for a, b in pairwise(names)]
    document = write.graph(
        {"go": "Start", **dict.fromkeys(reversed(names), "Pass"), "m": "Make"},
        ["go!m", "m.tensor>n0.tensor", *edges],
    )
    assert planned(document, definitions).levels == (("go", "m"), *((name,) for name in names))


@given(st.data())
def test_every_node_comes_after_what_feeds_it(data):
    count = data.draw(st.integers(1, 20))
    pairs = data.draw(st.sets(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=40))
    wires = sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})
    order = data.draw(st.permutations(range(count)))
    inputs = {n: [a for a, b in wires if b == n] for n in range(count)}
    nodes = [{"id": f"n{n}", "type": f"In{len(inputs[n])}"} for n in order] + [{"id": "go", "type": "Start"}]
    edges = [
        {"source": f"n{a}", "sourceHandle": "out", "target": f"n{n}", "targetHandle": f"i{k}"}
        for n, sources in inputs.items()
        for k, a in enumerate(sources)
    ]
    edges += [
        {"source": "go", "target": f"n{n}", "type": "trigger"}
        for n in data.draw(st.sets(st.integers(0, count - 1), min_size=1))
    ]
    result = planned(Document.parse({"nodes": nodes, "edges": edges}), ANY_INPUTS)
    level = {node: index for index, nodes in enumerate(result.levels) for node in nodes}
    assert level.keys() == result.nodes.keys()
    for node_id, node in result.nodes.items():
        assert set(node.inputs) == {port.name for port in node.input_ports}
        assert all(level[source.node_id] < level[node_id] for source in node.inputs.values())
    started = {edge["target"] for edge in edges if edge.get("type") == "trigger"}
    assert started <= result.nodes.keys()


def _any_inputs():
    from codefyui_core.plugin.node import NodeDefinition, Port

    out = (Port(name="out", type="ANY"),)
    types = [
        NodeDefinition(
            type=f"In{n}",
            category="t",
            inputs=tuple(Port(name=f"i{k}", type="ANY") for k in range(n)),
            outputs=out,
        )
        for n in range(20)
    ]
    start = NodeDefinition(type="Start", category="t", outputs=(Port(name="trigger", type="TRIGGER"),))
    return Definitions.of([*types, start])


ANY_INPUTS = _any_inputs()


def test_a_preset_is_planned_by_itself_for_map(write, definitions):
    result = preset_plan("Twice", write.graph({}), definitions)
    assert (result.input.node, result.input.port) == ("first", "tensor")
    assert (result.output.node, result.output.port) == ("second", "tensor")
    assert result.plan.levels == (("first", "side"), ("second",))
    assert result.plan.nodes["second"].params["factor"] == 2.0


def test_map_takes_an_embedded_preset_before_an_installed_one(write, definitions):
    own = write.preset("Twice", {"mine": "Pass"}, [], ["x=mine.tensor"], ["y=mine.tensor"])
    assert list(preset_plan("Twice", write.graph({}, presets=[own]), definitions).plan.nodes) == ["mine"]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("Gone", "unknown_preset"),
        ("Shut", "preset_not_mappable"),
        ("Round", "cycle"),
        ("Broken", "unknown_preset"),
    ],
)
def test_a_preset_that_map_cannot_run_is_refused(write, definitions, name, code):
    presets = [
        write.preset("Shut", {"a": "Make"}, [], [], ["y=a.tensor"]),
        write.preset("Round", {"a": "Add"}, ["a.tensor>a.a"], ["x=a.b"], ["y=a.tensor"]),
        write.preset("Broken", {"a": "preset:Gone"}),
    ]
    with pytest.raises(GraphInvalid) as caught:
        preset_plan(name, write.graph({}, presets=presets), definitions)
    assert [issue.code for issue in caught.value.issues] == [code]
