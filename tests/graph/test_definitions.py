"""Definitions: lookup by name, hashes, and the way over the wire."""

import json

import pytest

from codefyui_core.graph import Definitions, catalog_hash, definition_hash
from codefyui_core.plugin.node import NodeDefinition


def test_an_exact_type_is_found(definitions):
    assert definitions.find("iris:Measure").type == "iris:Measure"
    assert definitions.find("Print").type == "Print"
    assert definitions.find("Nothing") is None


def test_a_bare_name_means_the_one_namespaced_type_that_has_it(definitions):
    assert definitions.find("Press").type == "botany:Press"


def test_of_several_namespaces_the_alphabetically_first_is_taken(definitions):
    assert definitions.find("Measure").type == "botany:Measure"
    assert definitions.candidates("Measure") == ("botany:Measure", "iris:Measure")


def test_a_namespaced_name_never_falls_back(definitions):
    assert definitions.find("other:Measure") is None


def test_a_type_cannot_be_defined_twice(write):
    with pytest.raises(ValueError, match="Make"):
        Definitions.of([*write.nodes, write.define("Make")])


def test_definitions_come_back_from_json(definitions):
    text = json.dumps(definitions.to_json())
    again = Definitions.from_json(json.loads(text))
    assert again == definitions
    assert again.hash == definitions.hash


def test_a_hash_sees_every_field_and_no_order(write):
    nodes = write.nodes
    assert catalog_hash(nodes) == catalog_hash(reversed(nodes))
    seen = {definition_hash(node) for node in nodes}
    assert len(seen) == len(nodes)
    for change in ({"description": "x"}, {"cacheable": False}, {"category": "y"}, {"stateful": True}):
        assert definition_hash(nodes[0].model_copy(update=change)) not in seen
    assert catalog_hash(nodes[1:]) != catalog_hash(nodes)


def test_a_hash_is_sha_256_of_sorted_json_without_blanks():
    node = NodeDefinition(type="A", category="B")
    import hashlib

    text = json.dumps(node.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    assert definition_hash(node) == hashlib.sha256(text.encode()).hexdigest()


def test_catalogs_may_add_data_types():
    assert {"TENSOR", "MESH"} <= Definitions.of([], data_types=["MESH"]).data_types
