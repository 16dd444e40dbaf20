"""Presets, subgraphs and bypassed nodes become plain nodes."""

from itertools import pairwise

import pytest

from codefyui_core.graph import Definitions, Document, GraphInvalid, expand, validate


def wires(flat):
    return sorted(f"{edge.source}.{edge.source_port}>{edge.target}.{edge.target_port}" for edge in flat.edges)


def triggers(flat):
    return [f"{trigger.source}!{trigger.target}" for trigger in flat.triggers]


def test_a_preset_is_replaced_by_its_nodes_and_wires_follow(write, definitions):
    document = write.graph(
        {"go": "Start", "m": "Make", "t": "preset:Twice", "p": "Print"},
        ["go!m", "m.tensor>t.x", "t.y>p.value"],
    )
    flat = expand(document, definitions)
    assert list(flat.nodes) == ["go", "m", "t__first", "t__second", "t__side", "p"]
    assert wires(flat) == [
        "m.tensor>t__first.tensor",
        "t__first.tensor>t__second.tensor",
        "t__second.tensor>p.value",
    ]
    assert [node.container for node in flat.nodes.values()] == [None, None, "t", "t", "t", None]


def test_overrides_of_an_instance_reach_the_inner_params(write, definitions):
    node = write.node("t", "preset:Twice", internal={"second": {"factor": 5.0}, "gone": {"x": 1}})
    flat = expand(write.graph([node]), definitions)
    assert flat.nodes["t__first"].params == {"factor": 2.0}
    assert flat.nodes["t__second"].params == {"factor": 5.0}


def test_an_override_that_does_not_fit_is_charged_to_the_instance(write, definitions):
    node = write.node("t", "preset:Twice", internal={"second": {"factor": 50}})
    document = write.graph(
        [write.node("go", "Start"), write.node("m", "Make"), node], ["go!m", "m.tensor>t.x"]
    )
    (issue,) = validate(document, definitions)
    assert (issue.code, issue.node_id, issue.params["inner_node"]) == ("param_above_max", "t", "t__second")


def test_an_embedded_preset_wins_over_an_installed_one(write, definitions):
    own = write.preset("Twice", {"mine": "Pass"}, inputs=["x=mine.tensor"], outputs=["y=mine.tensor"])
    document = write.graph({"t": "preset:Twice"}, presets=[own])
    assert list(expand(document, definitions).nodes) == ["t__mine"]


def test_presets_nest_with_their_overrides(write, definitions):
    outer = write.preset(
        "Outer", {"in": "preset:Twice", "p": "Print"}, ["in.y>p.value"], ["a=in.x"], ["b=in.y"]
    )
    outer["nodes"][0]["internalParams"] = {"first": {"factor": 3.0}, "second": {"factor": 4.0}}
    node = write.node("o", "preset:Outer", internal={"in": {"second": {"factor": 9.0}}})
    nodes = [write.node("go", "Start"), write.node("m", "Make"), node, write.node("q", "Print")]
    document = write.graph(nodes, ["go!m", "m.tensor>o.a", "o.b>q.value"], presets=[outer])
    assert validate(document, definitions) == ()
    flat = expand(document, definitions)
    assert flat.nodes["o__in__first"].params == {"factor": 3.0}
    assert flat.nodes["o__in__second"].params == {"factor": 9.0}
    assert {"m.tensor>o__in__first.tensor", "o__in__second.tensor>q.value"} <= set(wires(flat))
    assert flat.nodes["o__in__first"].container == "o"


def test_a_subgraph_is_inlined_under_its_own_ids(write, definitions):
    inner = write.subgraph(
        "s1", {"a": "Pass", "b": "Pass"}, ["a.tensor>b.tensor"], ["x=a.tensor"], ["y=b.tensor"]
    )
    document = write.graph(
        {"go": "Start", "m": "Make", "g": "subgraph:s1", "h": "subgraph:s1"},
        ["go!m", "m.tensor>g.x", "g.y>h.x"],
        subgraphs=[inner],
    )
    flat = expand(document, definitions)
    assert wires(flat) == [
        "g/a.tensor>g/b.tensor",
        "g/b.tensor>h/a.tensor",
        "h/a.tensor>h/b.tensor",
        "m.tensor>g/a.tensor",
    ]


def test_a_subgraph_may_hold_presets_and_subgraphs(write, definitions):
    inner = write.subgraph("in", {"p": "preset:Twice"}, [], ["x=p.x"], ["y=p.y"])
    outer = write.subgraph("out", {"g": "subgraph:in"}, [], ["x=g.x"], ["y=g.y"])
    document = write.graph(
        {"go": "Start", "m": "Make", "o": "subgraph:out"}, ["go!m", "m.tensor>o.x"], subgraphs=[outer, inner]
    )
    assert validate(document, definitions) == ()
    assert "o/g/p__first" in expand(document, definitions).nodes


def test_a_preset_may_not_hold_a_subgraph(write, codes):
    inner = write.subgraph("in", {"m": "Make"})
    outer = write.preset("Outer", {"g": "subgraph:in"})
    document = write.graph(
        {"go": "Start", "m": "Make", "o": "preset:Outer"}, ["go!m"], presets=[outer], subgraphs=[inner]
    )
    assert codes(document) == [("subgraph_in_preset", "o")]


@pytest.mark.parametrize(
    ("node", "code"), [("preset:Gone", "unknown_preset"), ("subgraph:gone", "unknown_subgraph")]
)
def test_what_is_unknown_is_the_only_complaint_about_its_wires(write, codes, node, code):
    document = write.graph({"go": "Start", "x": node, "p": "Pass"}, ["go!x", "x.a>p.tensor", "p.tensor>x.b"])
    assert codes(document) == [(code, "x")]


def test_ports_that_a_preset_does_not_expose_are_named(write, codes):
    document = write.graph(
        {"go": "Start", "m": "Make", "t": "preset:Twice", "p": "Print"},
        ["go!m", "m.tensor>t.x", "m.tensor>t.tensor", "t.gone>p.value"],
    )
    assert codes(document) == [("preset_input_not_exposed", "t"), ("preset_output_not_exposed", "t")]


def test_ports_that_a_subgraph_does_not_have_are_named(write, codes):
    inner = write.subgraph("s", {"a": "Make"}, [], [], ["y=a.tensor"])
    document = write.graph(
        {"go": "Start", "m": "Make", "g": "subgraph:s", "p": "Print"},
        ["go!m", "m.tensor>g.x", "g.z>p.value"],
        subgraphs=[inner],
    )
    assert codes(document) == [("invalid_input_port", "g"), ("invalid_output_port", "g")]


def test_an_unwired_input_of_a_preset_is_missing_on_the_instance(write, definitions):
    document = write.graph({"go": "Start", "m": "Make", "t": "preset:Twice"}, ["go!m"])
    (issue,) = validate(document, definitions)
    assert (issue.code, issue.node_id, issue.params["inner_node"]) == ("missing_input", "t", "t__first")


def test_a_wire_from_outside_beside_one_from_inside_is_two_wires(write, codes):
    twice = write.preset("P", {"m": "Make", "a": "Pass"}, ["m.tensor>a.tensor"], ["x=a.tensor"])
    document = write.graph(
        {"go": "Start", "m": "Make", "t": "preset:P"}, ["go!m", "m.tensor>t.x"], presets=[twice]
    )
    assert codes(document) == [("input_wired_twice", "t")]


@pytest.mark.parametrize("kind", ["preset", "subgraph"])
def test_what_contains_itself_is_named(write, definitions, kind):
    if kind == "preset":
        groups = {"presets": [write.preset("A", {"b": "preset:B"}), write.preset("B", {"a": "preset:A"})]}
    else:
        groups = {
            "subgraphs": [write.subgraph("A", {"b": "subgraph:B"}), write.subgraph("B", {"a": "subgraph:A"})]
        }
    document = write.graph({"go": "Start", "m": "Make", "x": f"{kind}:A"}, ["go!m"], **groups)
    (issue,) = validate(document, definitions)
    assert (issue.code, issue.node_id) == (f"{kind}_recursion", "x")
    assert issue.params == {
        "definition": "A",
        "path": ["A", "B", "A"],
        "inner_node": issue.params["inner_node"],
    }
    assert "A" in issue.message


@pytest.mark.parametrize(("depth", "expected"), [(10, []), (11, [("nesting_too_deep", "x")])])
def test_groups_nest_ten_levels(write, codes, depth, expected):
    groups = [write.preset(f"P{n}", {"i": f"preset:P{n + 1}"}) for n in range(1, depth)]
    groups.append(write.preset(f"P{depth}", {"m": "Make"}))
    document = write.graph({"go": "Start", "m": "Make", "x": "preset:P1"}, ["go!m"], presets=groups)
    assert codes(document) == expected


def test_presets_that_would_grow_without_end_are_refused(write, codes):
    groups = [write.preset(f"P{n}", {f"i{k}": f"preset:P{n + 1}" for k in range(10)}) for n in range(9)]
    groups.append(write.preset("P9", {}))
    document = write.graph({"go": "Start", "m": "Make", "x": "preset:P0"}, ["go!m"], presets=groups)
    assert codes(document) == [("too_large", None)]


def test_two_nodes_that_get_one_id_are_reported(write, codes):
    document = write.graph(
        {"go": "Start", "m": "Make", "t__only": "Make", "t": "preset:Plain"}, ["go!m", "m.tensor>t.x"]
    )
    assert codes(document) == [("duplicate_id", "t")]


@pytest.mark.parametrize(
    "broken",
    [
        7,
        {},
        {"preset_name": ""},
        {"preset_name": 3, "nodes": []},
    ],
)
def test_a_definition_without_a_name_is_unreadable(write, codes, broken):
    document = write.graph({"go": "Start", "m": "Make"}, ["go!m"], presets=[broken])
    assert codes(document) == [("preset_unreadable", None)]


@pytest.mark.parametrize(
    "change",
    [
        {"exposed_inputs": 3},
        {"exposed_inputs": [4]},
        {"exposed_outputs": [{"name": "y"}]},
        {"exposed_outputs": [{"name": "y", "internal_node": "gone", "internal_port": "tensor"}]},
        {
            "exposed_outputs": [
                {"name": "y", "internal_node": "a", "internal_port": "tensor"},
                {"name": "y", "internal_node": "a", "internal_port": "tensor"},
            ]
        },
    ],
)
def test_what_a_broken_preset_exposes_is_reported_once_for_all_instances(write, codes, change):
    broken = write.preset("P", {"a": "Make"}, **change)
    document = write.graph({"go": "Start", "p": "preset:P", "q": "preset:P"}, ["go!p"], presets=[broken])
    assert codes(document) == [("preset_unreadable", "p")]


def test_a_broken_subgraph_is_unreadable(write, codes):
    broken = {
        "id": "s",
        "nodes": [write.node("a", "Make")],
        "interface": {"triggerTargets": ["gone"], "inputs": 3},
    }
    document = write.graph({"go": "Start", "p": "subgraph:s"}, ["go!p"], subgraphs=[broken])
    assert codes(document) == [("subgraph_unreadable", "p")] * 2


def test_two_definitions_of_one_name_are_reported(write, codes):
    document = write.graph(
        {"go": "Start", "m": "Make"}, ["go!m"], presets=[write.preset("P", {}), write.preset("P", {})]
    )
    assert codes(document) == [("preset_unreadable", None)]


def test_a_trigger_to_a_preset_starts_the_inner_roots_that_no_wire_feeds(write, definitions):
    document = write.graph({"go": "Start", "m": "Make", "t": "preset:Twice"}, ["go!t", "m.tensor>t.x"])
    assert triggers(expand(document, definitions)) == ["go!t__side"]
    alone = write.graph({"go": "Start", "t": "preset:Twice"}, ["go!t"])
    assert triggers(expand(alone, definitions)) == ["go!t__first", "go!t__side"]


def test_a_trigger_to_a_preset_whose_roots_are_all_fed_is_refused(write, codes):
    document = write.graph(
        {"go": "Start", "m": "Make", "t": "preset:Plain"}, ["go!m", "go!t", "m.tensor>t.x"]
    )
    assert codes(document) == [("preset_triggered_all_fed", "t")]


def test_a_trigger_to_an_empty_group_is_refused(write, codes):
    document = write.graph(
        {"go": "Start", "m": "Make", "e": "preset:E", "s": "subgraph:s"},
        ["go!m", "go!e", "go!s"],
        presets=[write.preset("E", {})],
        subgraphs=[write.subgraph("s", {})],
    )
    assert codes(document) == [("preset_triggered_empty", "e"), ("subgraph_triggered_empty", "s")]


def test_a_trigger_to_a_subgraph_starts_its_targets_or_its_roots(write, definitions):
    nodes = {"a": "Make", "b": "Make", "c": "Pass", "t": "preset:Twice"}
    chosen = write.subgraph("s", nodes, ["a.tensor>c.tensor"], targets=["b", "t"])
    rooted = write.subgraph("r", nodes, ["a.tensor>c.tensor"])
    document = write.graph(
        {"go": "Start", "g": "subgraph:s", "h": "subgraph:r"}, ["go!g", "go!h"], subgraphs=[chosen, rooted]
    )
    assert triggers(expand(document, definitions)) == [
        "go!g/b",
        "go!g/t__first",
        "go!g/t__side",
        "go!h/a",
        "go!h/b",
        "go!h/t__first",
        "go!h/t__side",
    ]


def test_a_group_starts_nothing(write, codes):
    document = write.graph({"go": "Start", "m": "Make", "t": "preset:Plain"}, ["go!m", "m.tensor>t.x", "t!m"])
    assert codes(document) == [("invalid_output_port", "t")]


def test_expand_refuses_what_it_cannot_expand(write, definitions):
    with pytest.raises(GraphInvalid) as caught:
        expand(write.graph({"x": "preset:Gone", "y": "preset:Lost"}), definitions)
    assert [issue.code for issue in caught.value.issues] == ["unknown_preset", "unknown_preset"]
    assert "1 more problem)" in caught.value.message


def test_a_bypassed_node_forwards_its_first_fitting_input(write, definitions):
    nodes = [
        write.node("go", "Start"),
        write.node("m", "Make"),
        write.node("n", "Make"),
        write.node("a", "Add", bypassed=True),
        write.node("p", "Print"),
    ]
    document = write.graph(nodes, ["go!m", "n.tensor>a.b", "m.tensor>a.a", "a.tensor>p.value"])
    assert validate(document, definitions) == ()
    flat = expand(document, definitions)
    assert wires(flat) == ["m.tensor>p.value"]
    assert "a" not in flat.nodes


def test_bypassed_nodes_in_a_row_forward_through_all_of_them(write, definitions):
    names = [f"b{n}" for n in range(5000)]
    nodes = [write.node("go", "Start"), write.node("m", "Make"), write.node("p", "Print")]
    nodes += [write.node(name, "Pass", bypassed=True) for name in names]
    chain = ["m.tensor>b0.tensor", "b4999.tensor>p.value"]
    chain += [f"{a}.tensor>{b}.tensor" for a, b in pairwise(names)]
    flat = expand(write.graph(nodes, ["go!m", *chain]), definitions)
    assert wires(flat) == ["m.tensor>p.value"]


def test_bypassed_nodes_in_a_circle_forward_nothing(write, codes):
    nodes = [write.node("go", "Start"), write.node("m", "Make"), write.node("p", "Print")]
    nodes += [write.node(name, "Pass", bypassed=True) for name in ("a", "b")]
    document = write.graph(nodes, ["go!m", "a.tensor>b.tensor", "b.tensor>a.tensor", "b.tensor>p.value"])
    assert codes(document) == [("missing_input", "p")]


def test_a_trigger_to_a_bypassed_node_starts_what_it_feeds(write, definitions):
    nodes = [
        write.node("go", "Start"),
        write.node("m", "Make"),
        write.node("p", "Print"),
        write.node("q", "Print"),
    ]
    nodes += [write.node(name, "Pass", bypassed=True) for name in ("a", "b")]
    document = write.graph(
        nodes, ["go!a", "m.tensor>a.tensor", "a.tensor>b.tensor", "b.tensor>p.value", "a.tensor>q.value"]
    )
    assert triggers(expand(document, definitions)) == ["go!p", "go!q"]


def test_a_bypassed_node_is_not_judged_by_its_own_params_and_inputs(write, codes):
    nodes = [
        write.node("go", "Start"),
        write.node("m", "Make"),
        write.node("s", "Scale", bypassed=True, factor="x"),
    ]
    assert codes(write.graph(nodes, ["go!m"])) == []


def test_types_are_judged_again_after_a_bypass(write, codes):
    loose = write.define("Loose", [write.port("value", "ANY")], [write.port("tensor")])
    definitions = Definitions.of([*write.nodes, loose])
    nodes = [
        write.node("go", "Start"),
        write.node("t", "Text"),
        write.node("l", "Loose", bypassed=True),
        write.node("p", "Pass"),
    ]
    document = write.graph(nodes, ["go!t", "t.text>l.value", "l.tensor>p.tensor"])
    assert [(issue.code, issue.node_id) for issue in validate(document, definitions)] == [
        ("type_mismatch", "p")
    ]


@pytest.mark.parametrize("type_name", ["preset:Plain", "subgraph:s", "GraphInput", "GraphOutput", "Start"])
def test_what_means_something_by_being_there_cannot_be_bypassed(write, definitions, type_name):
    inner = write.subgraph("s", {"a": "Make"}, [], ["x=a.tensor"])
    document = write.graph(
        [write.node("go", "Start"), write.node("m", "Make"), write.node("b", type_name, bypassed=True)],
        ["go!m"],
        subgraphs=[inner],
    )
    found = [(issue.code, issue.node_id) for issue in validate(document, definitions)]
    assert ("bypass_not_allowed", "b") in found


def test_a_bypassed_node_inside_a_subgraph_is_taken_out(write, definitions):
    inner = write.subgraph(
        "s",
        {"a": "Make", "b": write.node("b", "Pass", bypassed=True)},
        ["a.tensor>b.tensor"],
        [],
        ["y=b.tensor"],
    )
    document = write.graph(
        {"go": "Start", "g": "subgraph:s", "p": "Print"}, ["go!g", "g.y>p.value"], subgraphs=[inner]
    )
    assert validate(document, definitions) == ()
    assert wires(expand(document, definitions)) == ["g/a.tensor>p.value"]


def test_a_bypassed_unknown_type_gives_no_second_complaint(write, codes):
    nodes = [
        write.node("go", "Start"),
        write.node("m", "Make"),
        write.node("x", "Gone", bypassed=True),
        write.node("p", "Print"),
    ]
    assert codes(write.graph(nodes, ["go!m", "m.tensor>x.a", "x.b>p.value"])) == [("unknown_node_type", "x")]


def test_a_preset_of_a_split_graph_file_keeps_params_beside_the_type(definitions):
    document = Document.parse({"nodes": [{"id": "m", "type": "Make", "params": {"shape": "3"}}], "edges": []})
    assert expand(document, definitions).nodes["m"].params == {"shape": "3"}
