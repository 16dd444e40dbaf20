"""Documents are kept whole."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.graph import Document, GraphInvalid

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(min_size=1).filter(lambda key: key not in KNOWN), JSON, max_size=5))
def test_unknown_keys_are_kept(extra):
    raw = {"name": "g", "nodes": [{"id": "a", "type": "T", "colour": extra}], "edges": [], **extra}
    assert json.loads(Document.parse(json.dumps(raw)).dump()) == raw
    assert Document.parse(raw).raw == raw


KNOWN = {"name", "nodes", "edges", "presets", "subgraphs", "segmentGroups", "settings"}


@pytest.mark.parametrize(
    "source",
    ["[]", "1", "null", '"x"', "", "{", '{"nodes":{}}', '{"edges":1}', '{"presets":"x"}', '{"settings":[1]}'],
)
def test_what_is_no_graph_is_refused(source):
    with pytest.raises(GraphInvalid) as caught:
        Document.parse(source)
    assert caught.value.code == "graph.invalid"
    assert caught.value.issues[0].code in ("not_json", "malformed_document")


def test_a_bare_nan_is_refused_with_its_position():
    with pytest.raises(GraphInvalid, match="line 2, column 7") as caught:
        Document.parse(b'{"nodes":[],\n "x": NaN}')
    assert caught.value.issues[0].params == {"line": 2, "column": 7}


def test_a_python_mapping_with_nan_is_refused_with_its_path():
    with pytest.raises(GraphInvalid, match="/nodes/0/x"):
        Document.parse({"nodes": [{"x": math.nan}]})


def test_every_key_is_optional():
    document = Document.parse("{}")
    assert (document.name, document.description) == ("Untitled", "")
    assert document.settings_device is None
    assert document.settings_seed is None
    assert Document.parse('{"nodes":null,"settings":null}').name == "Untitled"


def test_settings_are_read():
    document = Document.parse('{"name":"n","settings":{"device":"cuda:1","seed":0}}')
    assert (document.name, document.settings_device, document.settings_seed) == ("n", "cuda:1", 0)
    assert Document.parse('{"settings":{"seed":true,"device":1}}').settings_seed is None
