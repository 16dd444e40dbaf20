"""Node types that a run needs, the presets that nodes run by name, and what travels with a document."""

import json

import pytest

from codefyui_core.graph import Definitions, embed_presets, node_types, validate


def mapped(write, preset, **more):
    nodes = [write.node("go", "Start"), write.node("i", "Items"), write.node("map", "Map", subgraph=preset)]
    return write.graph(nodes, ["go!i", "i.items>map.items"], **more)


@pytest.mark.spec("catalog/check-expands-presets", "catalog/check-expands-subgraphs")
def test_types_are_those_after_presets_and_nested_subgraphs(write, definitions):
    inner = write.subgraph("in", {"f": "Foo"})
    outer = write.subgraph("out", {"g": "subgraph:in"})
    own = write.preset("P", {"b": "Bar"})
    document = write.graph(
        {"o": "subgraph:out", "p": "preset:P", "t": "preset:Twice", "n": "note"},
        presets=[own],
        subgraphs=[outer, inner],
    )
    assert node_types(document, definitions) == {"Foo", "Bar", "Scale", "Make"}


@pytest.mark.spec("catalog/check-includes-map-presets")
def test_types_of_mapped_presets_count_through_all_levels(write, definitions):
    inner = write.preset("Inner", {"f": "Foo"}, [], ["x=f.a"], ["y=f.b"])
    outer = write.preset("Outer", {"m": ("Map", {"subgraph": "Inner"})}, [], ["x=m.items"], ["y=m.results"])
    installed = Definitions.of(write.nodes, [outer, inner])
    assert node_types(mapped(write, "Outer"), installed) == {"Start", "Items", "Map", "Foo"}


def test_a_bare_name_is_needed_as_the_type_that_it_means(write, definitions):
    assert node_types(write.graph({"p": "Press", "q": "Lost"}), definitions) == {"botany:Press", "Lost"}


def test_an_unknown_mapped_preset_is_refused(write, definitions):
    (issue,) = validate(mapped(write, "Gone"), definitions)
    assert (issue.code, issue.node_id) == ("unknown_preset", "map")
    assert issue.params == {"preset": "Gone", "param": "subgraph"}


def test_a_mapped_preset_is_judged_as_a_graph_of_its_own(write, definitions, codes):
    assert validate(mapped(write, "Twice"), definitions) == ()
    broken = write.preset("P", {"a": "Add", "x": "Gone"}, [], ["x=a.a"], ["y=a.tensor"])
    (unknown, missing) = validate(mapped(write, "P", presets=[broken]), definitions)
    assert (unknown.code, unknown.node_id, unknown.params) == (
        "unknown_node_type",
        "map",
        {"preset": "P", "type": "Gone"},
    )
    assert (missing.code, missing.node_id, missing.params["port"]) == ("missing_input", "map", "b")


def test_a_mapped_preset_needs_an_input_and_an_output(write, codes):
    shut = write.preset("P", {"a": "Make"}, [], [], ["y=a.tensor"])
    assert codes(mapped(write, "P", presets=[shut])) == [("preset_not_mappable", "map")]


def test_a_cycle_in_a_mapped_preset_is_refused(write, codes):
    around = write.preset("P", {"a": "Add"}, ["a.tensor>a.b"], ["x=a.a"], ["y=a.tensor"])
    assert codes(mapped(write, "P", presets=[around])) == [("cycle", "map")]


@pytest.mark.parametrize("length", [1, 3, 300])
def test_presets_that_map_one_another_in_a_circle_are_refused(write, definitions, length):
    circle = [
        write.preset(
            f"P{n}", {"m": ("Map", {"subgraph": f"P{(n + 1) % length}"})}, [], ["x=m.items"], ["y=m.results"]
        )
        for n in range(length)
    ]
    (issue,) = validate(mapped(write, "P0", presets=circle), definitions)
    assert (issue.code, issue.node_id, len(issue.params["path"])) == ("preset_recursion", "map", length + 1)


def test_an_empty_preset_name_asks_for_nothing(write, codes):
    assert codes(mapped(write, "")) == []


def test_the_assignment_embeds_every_installed_preset_that_it_needs(write, definitions):
    inner = write.preset("Inner", {"p": "preset:Plain"}, [], ["x=p.x"], ["y=p.y"])
    installed = Definitions.of(write.nodes, [inner, write.plain, write.twice])
    document = mapped(write, "Inner")
    embedded = embed_presets(document, installed)
    assert [preset["preset_name"] for preset in embedded.raw["presets"]] == ["Inner", "Plain"]
    assert "presets" not in document.raw
    bare = Definitions.of(write.nodes)
    assert validate(embedded, bare) == ()
    assert node_types(embedded, bare) == node_types(document, installed)
    assert embed_presets(embedded, installed) is embedded


def test_an_embedded_preset_is_not_embedded_again(write, definitions):
    own = write.preset("Twice", {"mine": "Pass"}, [], ["x=mine.tensor"], ["y=mine.tensor"])
    document = mapped(write, "Twice", presets=[own])
    assert embed_presets(document, definitions) is document
    assert json.loads(document.dump())["presets"] == [own]
