"""Ports that repeat, and what a wire may join."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.graph import joins, ports
from codefyui_core.plugin.node import DataType

TYPES = st.sampled_from([*map(str, DataType), "MESH"])


@pytest.mark.parametrize(
    ("chunks", "count"),
    [(3, 3), (0, 1), (-5, 1), (99, 32), (10**400, 32), (2.0, 2), ("7", 2), (None, 2), (True, 2), ([], 2)],
)
def test_outputs_repeat_by_the_clamped_param_or_its_default(definitions, chunks, count):
    _, outputs = ports(definitions.find("Split"), {"chunks": chunks})
    assert [port.name for port in outputs] == [f"chunk_{n}" for n in range(count)]
    assert all(port.repeat is None for port in outputs)


def test_ports_around_a_repeated_one_keep_their_places(definitions):
    inputs, outputs = ports(definitions.find("Switch"), {"inputs": 3})
    assert [port.name for port in inputs] == ["selector", "input_0", "input_1", "input_2"]
    assert [port.name for port in outputs] == ["output"]


@given(TYPES, TYPES)
def test_a_wire_joins_equal_types_any_and_images_to_tensors_only(source, target):
    allowed = source == target or (source, target) == ("IMAGE", "TENSOR")
    if "TRIGGER" not in (source, target):
        allowed = allowed or "ANY" in (source, target)
    assert joins(source, target) is allowed
