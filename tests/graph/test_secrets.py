"""No secret stays in a stored copy, and every one comes back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.graph import (
    Definitions,
    Document,
    GraphInvalid,
    SecretValues,
    blank_secrets,
    fill_secrets,
    secret_params,
)
from codefyui_core.plugin.node import NodeDefinition, Param, ParamKind

TYPES = Definitions.of(
    [
        NodeDefinition(
            type=name,
            category="t",
            params=(
                Param(name="key", kind=ParamKind.SECRET),
                Param(name="a/b~c", kind=ParamKind.SECRET),
                Param(name="prompt", kind=ParamKind.STRING),
            ),
        )
        for name in ("Chat", "lab:Ask")
    ],
    [{"preset_name": "Installed", "nodes": [{"id": "c", "type": "Chat", "params": {}}], "edges": []}],
)


def test_secrets_are_found_in_every_place(write, definitions):
    own = write.preset("P", {"c": ("Chat", {"key": "S2", "prompt": "open"})})
    own["exposed_params"] = [
        {"internal_node": "c", "param_name": "key", "param_def": {"param_type": "string", "default": "S3"}},
        {"internal_node": "x", "param_name": "y", "param_def": {"param_type": "secret", "default": "S4"}},
        {
            "internal_node": "c",
            "param_name": "prompt",
            "param_def": {"param_type": "string", "default": "open"},
        },
    ]
    outer = write.preset("Q", {"p": "preset:P"})
    outer["nodes"][0]["internalParams"] = {"c": {"key": "S5"}}
    nodes = [
        write.node("a", "Chat", key="S1", prompt="open"),
        write.node("b", "Chat", bypassed=True, key="S6"),
        write.node("p", "preset:P", internal={"c": {"key": "S7", "prompt": "open"}}),
        write.node("q", "preset:Q", internal={"p": {"c": {"key": "S8"}}}),
        {"id": "flat", "type": "Chat", "params": {"key": "S9"}},
    ]
    sub = write.subgraph("s", {"c": write.node("c", "Chat", key="S0")})
    document = write.graph(nodes, presets=[own, outer], subgraphs=[sub])
    stored, values = blank_secrets(document, definitions)
    assert sorted(values.to_json().values()) == [f"S{n}" for n in range(10)]
    assert '"S' not in stored.dump()
    assert stored.dump().count('"open"') == 4
    assert fill_secrets(stored, values) == document
    assert secret_params(stored, definitions) == ()


def test_an_override_of_an_installed_preset_is_a_secret_too(write):
    document = write.graph([write.node("p", "preset:Installed", internal={"c": {"key": "S"}})])
    (found,) = secret_params(document, TYPES)
    assert (found.node_id, found.param, found.pointer) == ("c", "key", "/nodes/0/data/internalParams/c/key")


def test_a_preset_says_itself_what_is_secret_in_types_that_are_not_installed(write):
    own = write.preset("P", {"c": ("Gone", {"token": "S1", "open": "x"})})
    own["exposed_params"] = [
        {"internal_node": "c", "param_name": "token", "param_def": {"param_type": "secret", "default": "S2"}}
    ]
    document = write.graph([write.node("p", "preset:P", internal={"c": {"token": "S3"}})], presets=[own])
    stored, values = blank_secrets(document, TYPES)
    assert sorted(values.to_json().values()) == ["S1", "S2", "S3"]
    assert fill_secrets(stored, values) == document


def test_a_node_that_cannot_run_keeps_no_secret_either(write):
    nodes = [
        {"id": 7, "type": "Chat", "data": {"params": {"key": "S"}}},
        {"type": "Chat", "params": {"key": "S"}},
    ]
    stored, values = blank_secrets(Document.parse({"nodes": nodes}), TYPES)
    assert (len(values), '"S"' in stored.dump()) == (2, False)


def test_blank_values_are_no_secrets(write):
    document = write.graph([write.node("a", "Chat", key="", prompt="x"), write.node("b", "Chat", key=None)])
    stored, values = blank_secrets(document, TYPES)
    assert stored is document
    assert not values


def test_the_document_itself_is_not_changed(write):
    document = write.graph([write.node("a", "Chat", key="S")])
    before = document.dump()
    stored, values = blank_secrets(document, TYPES)
    fill_secrets(stored, values)
    assert document.dump() == before
    assert '"S"' not in stored.dump()


def test_the_text_of_secret_values_shows_stars():
    values = SecretValues({"/nodes/0/data/params/key": "hunter2"})
    assert "hunter2" not in f"{values} {values!r} {[values]}"
    assert "/nodes/0/data/params/key=****" in repr(values)
    assert SecretValues.from_json(json.loads(json.dumps(values.to_json()))) == values
    assert len(values) == 1


@pytest.mark.parametrize(
    "pointer", ["/nodes/3/data/params/key", "/nodes/x/a", "/nodes/0/data/params/new", "/name/0"]
)
def test_secrets_of_another_document_are_refused(write, pointer):
    with pytest.raises(GraphInvalid, match="nothing at") as caught:
        fill_secrets(write.graph([write.node("a", "Chat", key="")]), SecretValues({pointer: "hunter2"}))
    assert "hunter2" not in str(caught.value)


PARAMS = st.dictionaries(
    st.sampled_from(["key", "a/b~c", "prompt", "other"]),
    st.sampled_from(["", None, 5, "s-1", "s-2", ["s-3"]]),
    max_size=4,
)
INTERNAL = st.dictionaries(st.sampled_from(["c", "d", "p", "/"]), PARAMS, max_size=3)
KINDS = st.sampled_from(
    ["Chat", "Ask", "lab:Ask", "preset:P", "preset:Q", "preset:Installed", "note", "Gone", "subgraph:s"]
)
NODE = st.builds(
    lambda node_id, kind, params, internal, beside: {
        "id": node_id,
        "type": kind,
        "data": {"params": params, "internalParams": internal},
        **({"params": beside} if beside else {}),
    },
    st.sampled_from(["c", "d", "p", "/"]),
    KINDS,
    PARAMS,
    INTERNAL,
    PARAMS,
)
GROUP = st.builds(
    lambda name, nodes: {"preset_name": name, "id": "s", "nodes": nodes},
    st.sampled_from(["P", "Q"]),
    st.lists(NODE, max_size=3),
)
DOCUMENTS = st.builds(
    lambda nodes, presets, subgraphs: Document.parse(
        {"nodes": nodes, "presets": presets, "subgraphs": subgraphs}
    ),
    st.lists(NODE, max_size=4),
    st.lists(GROUP, max_size=3),
    st.lists(GROUP, max_size=2),
)


@given(DOCUMENTS)
def test_blanking_and_filling_gives_the_document_back(document):
    stored, values = blank_secrets(document, TYPES)
    assert fill_secrets(stored, values) == document
    assert secret_params(stored, TYPES) == ()


@given(DOCUMENTS)
def test_no_declared_secret_is_left_in_any_node_of_the_stored_copy(document):
    stored, _ = blank_secrets(document, TYPES)
    groups = [stored.raw, *stored.raw["presets"], *stored.raw["subgraphs"]]
    for node in (node for group in groups for node in group["nodes"]):
        if TYPES.find(node["type"]) is not None:
            for params in (node["data"]["params"], node.get("params", {})):
                assert all(params.get(name) in (None, "") for name in ("key", "a/b~c"))
