"""Whatever a document holds: an answer, never an exception; and a clean graph can be planned."""

import copy
import json
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codefyui_core.graph import (
    Document,
    GraphInvalid,
    blank_secrets,
    embed_presets,
    expand,
    fill_secrets,
    node_types,
    plan,
    preset_plan,
    validate,
)

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
WORDS = st.sampled_from(
    [
        "go",
        "m",
        "t",
        "g",
        "first",
        "second",
        "a",
        "b",
        "x",
        "y",
        "tensor",
        "trigger",
        "__trigger",
        "value",
        "Start",
        "Make",
        "Pass",
        "Switch",
        "Map",
        "Split",
        "Chat",
        "note",
        "preset:Twice",
        "preset:P",
        "subgraph:s",
        "preset:",
        "Twice",
        "P",
        "s",
    ]
)
KEYS = st.sampled_from(
    [
        "id",
        "type",
        "data",
        "params",
        "internalParams",
        "bypassed",
        "source",
        "target",
        "sourceHandle",
        "targetHandle",
        "nodes",
        "edges",
        "interface",
        "inputs",
        "outputs",
        "triggerTargets",
        "preset_name",
        "exposed_inputs",
        "exposed_outputs",
        "exposed_params",
        "name",
        "internal_node",
        "internal_port",
        "innerNode",
        "innerPort",
        "port",
        "selector",
        "subgraph",
        "chunks",
        "key",
    ]
)
SHAPED = st.recursive(
    WORDS | JSON,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=25,
)


def everything(document, definitions):
    """Every public question about a document; its issues."""
    issues = validate(document, definitions)
    for issue in issues:
        json.dumps(issue.to_json(), allow_nan=False)
        assert issue.code
        assert issue.message
    assert isinstance(node_types(document, definitions), frozenset)
    embed_presets(document, definitions)
    stored, values = blank_secrets(document, definitions)
    assert fill_secrets(stored, values) == document
    for name in ("Twice", "P"):
        refused(lambda name=name: preset_plan(name, document, definitions))
    if refused(lambda: plan(expand(document, definitions), definitions)):
        assert issues
    return issues


def refused(call):
    """The issues of a refusal; nothing when there is none."""
    try:
        call()
    except GraphInvalid as error:
        return [*error.issues, error.message]
    return []


@SHARED
@given(JSON)
def test_any_json_gives_issues_or_a_refusal(definitions, value):
    text = json.dumps(value)
    if not refused(lambda: Document.parse(text)):
        everything(Document.parse(text), definitions)


@SHARED
@given(
    st.fixed_dictionaries(
        {key: st.lists(SHAPED, max_size=4) for key in ("nodes", "edges", "presets", "subgraphs")}
    )
)
def test_anything_in_the_shape_of_a_graph_gives_issues(definitions, value):
    everything(Document.parse(value), definitions)


def good(write):
    own = write.preset(
        "P",
        {"a": "Pass", "b": ("Scale", {"factor": 2})},
        ["a.tensor>b.tensor"],
        ["x=a.tensor"],
        ["y=b.tensor"],
    )
    sub = write.subgraph("s", {"m": "Make", "q": "preset:P"}, ["m.tensor>q.x"], [], ["y=q.y"], ["m"])
    nodes = [
        write.node("go", "Start"),
        write.node("m", "Make"),
        write.node("t", "preset:Twice", internal={"first": {"factor": 3}}),
        write.node("g", "subgraph:s"),
        write.node("w", "Switch", selector=1),
        write.node("b", "Pass", bypassed=True),
        write.node("k", "Split", chunks=3),
        write.node("p", "Print"),
        write.node("i", "Items"),
        write.node("map", "Map", subgraph="P"),
        write.node("c", "Chat", key="secret"),
        write.node("n", "note"),
    ]
    wires = [
        "go!m",
        "go!g",
        "go!i",
        "go!c",
        "m.tensor>t.x",
        "t.y>w.input_0",
        "g.y>w.input_1",
        "w.output>b.tensor",
    ]
    wires += ["b.tensor>k.tensor", "k.chunk_2>p.value", "i.items>map.items"]
    return write.raw(nodes, wires, presets=[own], subgraphs=[sub], settings={"seed": 1})


def test_the_graph_that_is_mutated_is_good_itself(write, definitions):
    assert everything(Document.parse(good(write)), definitions) == ()


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in items:
        yield from places(below, (*path, key))


@settings(SHARED, max_examples=300)
@given(st.data())
def test_a_good_graph_with_anything_changed_in_it_never_raises(write, definitions, data):
    raw = copy.deepcopy(good(write))
    for _ in range(data.draw(st.integers(1, 4))):
        path = data.draw(st.sampled_from([path for path in places(raw) if len(path) > 1]))
        holder = raw
        for key in path[:-1]:
            holder = holder[key]
        if data.draw(st.booleans()):
            holder[path[-1]] = data.draw(SHAPED)
        elif isinstance(holder, list):
            holder.append(copy.deepcopy(holder[path[-1]]))
        else:
            del holder[path[-1]]
    everything(Document.parse(raw), definitions)


@settings(SHARED, max_examples=200)
@given(st.data())
def test_a_graph_without_issues_can_always_be_planned(write, definitions, data):
    types = data.draw(
        st.lists(
            st.sampled_from(["Make", "Pass", "Print", "Add", "Switch", "Scale", "preset:Plain"]),
            min_size=1,
            max_size=8,
        )
    )
    nodes = [
        write.node(f"n{k}", kind, bypassed=data.draw(st.integers(0, 5)) == 0) for k, kind in enumerate(types)
    ]
    outs = {"Print": "value", "Switch": "output", "preset:Plain": "y"}
    ins = {"Print": ["value"], "Switch": ["input_0"], "Add": ["a", "b"], "preset:Plain": ["x"], "Make": []}
    wires = []
    for k, kind in enumerate(types):
        for port in ins.get(kind, ["tensor"]):
            source = data.draw(
                st.integers(0, max(k, 1) - 1 if data.draw(st.integers(0, 9)) else len(types) - 1)
            )
            wires.append(f"n{source}.{outs.get(types[source], 'tensor')}>n{k}.{port}")
    wires += [f"go!n{k}" for k in sorted(data.draw(st.sets(st.integers(0, len(types) - 1), min_size=1)))]
    document = write.graph([write.node("go", "Start"), *nodes], wires)
    if everything(document, definitions):
        return
    result = plan(expand(document, definitions), definitions)
    for node in result.nodes.values():
        required = {
            port.name for port in node.input_ports if not port.optional and port.name not in node.params
        }
        assert required <= node.inputs.keys()
        assert all(source.port in result.nodes[source.node_id].outputs for source in node.inputs.values())


def test_a_large_graph_is_judged_without_recursion(write, definitions):
    names = [f"n{k}" for k in range(5000)]
    edges = [
        {"source": a, "sourceHandle": "output", "target": b, "targetHandle": "input_0"}
        for a, b in pairwise(names)
    ]
    edges += [
        {"source": "go", "target": "m", "type": "trigger"},
        {"source": "m", "sourceHandle": "tensor", "target": "n0", "targetHandle": "input_0"},
    ]
    nodes = [{"id": name, "type": "Switch"} for name in names]
    nodes += [{"id": "go", "type": "Start"}, {"id": "m", "type": "Make"}]
    assert validate(Document.parse({"nodes": nodes, "edges": edges}), definitions) == ()
