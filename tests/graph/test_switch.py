"""Switch: what its param selects has to be there, and what it gives is what it gets."""

import pytest

from codefyui_core.graph import Definitions, expand, validate


def switched(write, selector, wires, **params):
    nodes = [
        write.node("go", "Start"),
        write.node("p", "Print"),
        write.node("s", "Switch", selector=selector, **params),
    ]
    nodes += [
        write.node(name, kind)
        for name, kind in (("a", "Make"), ("b", "Make"), ("t", "Text"), ("n", "Number"), ("i", "Picture"))
    ]
    return write.graph(nodes, ["go!a", "go!n", "s.output>p.value", *wires])


def test_the_selected_input_has_to_be_wired(write, definitions):
    document = switched(write, 1, ["a.tensor>s.input_0"])
    (issue,) = validate(document, definitions)
    assert (issue.code, issue.node_id) == ("switch_selected_unwired", "s")
    assert issue.params == {"selector": 1, "inputs": 4, "port": "input_1"}


@pytest.mark.parametrize(("selector", "inputs"), [(-1, 4), (4, 4), (2, 2), (16, 99)])
def test_the_selector_has_to_be_in_range(write, definitions, selector, inputs):
    document = switched(write, selector, ["a.tensor>s.input_0"], inputs=inputs)
    found = [
        issue for issue in validate(document, definitions) if issue.code == "switch_selector_out_of_range"
    ]
    assert [(issue.node_id, issue.params) for issue in found] == [
        ("s", {"selector": selector, "inputs": min(inputs, 16)})
    ]


def test_a_wired_selector_selects_at_run_time(write, codes):
    assert codes(switched(write, 9, ["a.tensor>s.input_0", "n.value>s.selector"])) == []


def test_unselected_inputs_need_no_wire(write, codes):
    assert codes(switched(write, 2, ["a.tensor>s.input_2"])) == []


def test_wires_beyond_the_count_have_no_port(write, codes):
    assert codes(switched(write, 0, ["a.tensor>s.input_0", "b.tensor>s.input_2"], inputs=2)) == [
        ("invalid_input_port", "s")
    ]


def test_inputs_have_one_type(write, definitions):
    (issue,) = validate(switched(write, 0, ["a.tensor>s.input_0", "t.text>s.input_1"]), definitions)
    assert (issue.code, issue.node_id) == ("switch_input_types_differ", "s")
    assert issue.params == {"types": {"input_0": "TENSOR", "input_1": "STRING"}}


def test_the_output_has_the_common_type_of_the_inputs(write, codes):
    document = write.graph(
        {"go": "Start", "t": "Text", "s": "Switch", "r": "Switch", "p": "Pass"},
        ["go!t", "t.text>s.input_0", "s.output>r.input_0", "r.output>p.tensor"],
    )
    assert codes(document) == [("type_mismatch", "p")]


def test_an_input_of_any_type_agrees_with_all(write, codes):
    document = write.graph(
        {"go": "Start", "a": "Make", "q": "Print", "s": "Switch", "p": "Pass"},
        ["go!a", "a.tensor>q.value", "q.value>s.input_1", "a.tensor>s.input_0", "s.output>p.tensor"],
    )
    assert codes(document) == []


def test_a_circle_of_switches_is_only_a_cycle(write, codes):
    document = write.graph(
        {"go": "Start", "a": "Make", "s": "Switch", "r": "Switch"},
        ["go!s", "go!a", "s.output>r.input_0", "r.output>s.input_0"],
    )
    assert codes(document) == [("cycle", "s")]


def test_a_bypassed_switch_forwards_its_first_input_and_never_its_selector(write, definitions):
    nodes = [
        write.node("go", "Start"),
        write.node("a", "Make"),
        write.node("n", "Number"),
        write.node("p", "Pass"),
    ]
    nodes.append(write.node("s", "Switch", bypassed=True, selector=1))
    document = write.graph(nodes, ["go!a", "n.value>s.selector", "a.tensor>s.input_0", "s.output>p.tensor"])
    assert validate(document, definitions) == ()
    (edge,) = expand(document, definitions).edges
    assert (edge.source, edge.target) == ("a", "p")


def test_an_input_from_something_unknown_counts_as_wired(write, codes):
    document = write.graph(
        {"go": "Start", "a": "Make", "x": "preset:Gone", "s": "Switch"}, ["go!a", "x.y>s.input_0"]
    )
    assert codes(document) == [("unknown_preset", "x")]


def test_other_types_of_its_shape_are_not_taken_for_one(write):
    shape = next(node for node in write.nodes if node.type == "Switch")
    other = Definitions.of([*write.nodes, shape.model_copy(update={"type": "Concat"})])
    document = write.graph({"go": "Start", "a": "Make", "c": "Concat"}, ["go!a", "a.tensor>c.input_1"])
    assert validate(document, other) == ()
