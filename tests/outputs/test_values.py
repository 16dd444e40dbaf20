"""What is recorded reads back as it was, whole or by a slice."""

import json
import math
import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codefyui_core.engine import Limits, Recorder
from codefyui_core.errors import CodefyError
from codefyui_core.outputs import OutputStore, Question, What, answer, reading

GRID = np.arange(2 * 3 * 4, dtype="float32").reshape(2, 3, 4)
SLICES = [None, "", "0", "0,:,:", "-1,1:", ":,0", ":,:,0", "::2,1,::3", ":,1:3,-2", "1,2,3", ":,:,1:3"]


def python_slice(text):
    return eval(f"GRID[{text}]", {"GRID": GRID}) if text else GRID


@pytest.mark.parametrize("text", SLICES)
def test_a_slice_of_a_tensor_reads_as_python_would_take_it(room, text):
    room.record(x=torch.from_numpy(GRID))
    found = room.value("x", text)
    expected = python_slice(text)
    assert found["values"] == expected.tolist()
    assert (found["shape"], found["selected"], found["dtype"]) == ([2, 3, 4], list(expected.shape), "float32")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_slice_of_any_shape_reads_as_python_would_take_it(room, data):
    shape = data.draw(st.lists(st.integers(1, 6), min_size=0, max_size=4))
    array = np.arange(math.prod(shape), dtype="int16").reshape(shape)
    parts = [data.draw(st.sampled_from([":", "0", "-1", "1:", ":3", "::2", "1::3"])) for _ in shape]
    bounded = parts[: data.draw(st.integers(0, len(parts)))]
    room.record(x=array)
    expected = eval(f"array[{','.join(bounded)}]", {"array": array}) if bounded else array
    found = room.value("x", ",".join(bounded))
    assert (None if np.size(expected) == 0 else np.asarray(expected).tolist()) == (found and found["values"])


def test_a_slice_reads_no_more_of_the_file_than_it_needs(room, monkeypatch):
    room.record(x=torch.zeros(1000, 1000))
    read = []
    pread = os.pread
    monkeypatch.setattr(reading.os, "pread", lambda fd, size, at: read.append(size) or pread(fd, size, at))
    assert room.value("x", "500,:8")["values"] == [0.0] * 8
    assert read == [8 * 4]
    read.clear()
    room.value("x", ":4,7")
    assert read == [4, 4, 4, 4]


@pytest.mark.parametrize("text", ["9", "-4", "a", "::0", "::-1", "0,0,0,0", "1:2:3:4", "0,,1"])
def test_a_slice_that_fits_no_value_is_refused(room, text):
    room.record(x=torch.zeros(3, 3, 3))
    with pytest.raises(CodefyError) as refused:
        room.value("x", text)
    assert refused.value.code == "request.invalid"


@pytest.mark.parametrize(
    "dtype",
    ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"],
)
def test_every_element_type_reads_back(room, dtype):
    tensor = torch.tensor([0, 1, 0, 1, 1]).to(getattr(torch, dtype))
    room.record(x=tensor)
    found = room.value("x")
    assert (found["dtype"], found["values"]) == (dtype, tensor.tolist())


def test_complex_numbers_read_as_texts(room):
    room.record(x=torch.tensor([1 + 2j, -0.5j]))
    assert room.value("x")["values"] == [str(1 + 2j), str(complex(-0.0, -0.5))]


def test_numbers_that_json_has_no_word_for_are_named(room):
    room.record(x=torch.tensor([1.0, math.nan, math.inf, -math.inf]), y=math.nan)
    named = [{"__float__": word} for word in ("nan", "inf", "-inf")]
    assert room.value("x")["values"] == [1.0, *named]
    assert room.value("y")["value"] == named[0]


def test_arrays_of_other_byte_orders_layouts_and_types_read_back(room):
    room.record(
        big=np.arange(4, dtype=">i4"),
        turned=np.arange(6).reshape(2, 3).T,
        long=np.array([1.5], dtype=np.longdouble),
        columns=torch.arange(6).reshape(2, 3).t(),
    )
    assert room.value("big")["values"] == [0, 1, 2, 3]
    assert room.value("turned")["values"] == [[0, 3], [1, 4], [2, 5]]
    assert room.value("columns")["values"] == [[0, 3], [1, 4], [2, 5]]
    assert room.value("long")["values"] == [1.5]


def test_a_tensor_is_kept_as_it_was_when_its_node_ended(room):
    tensor = torch.zeros(3, requires_grad=True)
    recorder = Recorder(room.store, "0f3c9d7a", Limits())
    recorder.node("n", "Test", None, [SimpleNamespace(name="x")], {"x": tensor})
    with torch.no_grad():
        tensor.fill_(7)
    recorder.write()
    assert room.value("x")["values"] == [0.0, 0.0, 0.0]


def test_texts_lists_and_dicts_read_back_and_are_cut_by_the_slice(room):
    room.record(
        plain="abcdef",
        wide="Grüße 🙂!",
        items=[1, "two", None, [4.5, {"a": True}]],
        named={"a": 1, "b": [2], "ü": "x"},
        pair=(1, 2),
    )
    assert room.value("plain", "2:4")["value"] == "cd"
    assert room.value("wide")["value"] == "Grüße 🙂!"
    assert room.value("wide", "6:7")["value"] == "🙂"
    assert room.value("items")["value"] == [1, "two", None, [4.5, {"a": True}]]
    assert room.value("items", "1:3")["value"] == ["two", None]
    assert room.value("named", ":2")["value"] == {"a": 1, "b": [2]}
    assert room.value("pair")["value"] == [1, 2]


def test_scalars_and_other_values_are_told_in_short(room):
    room.record(small=np.int8(7), count=3, ratio=0.25, yes=True, large=1 << 80, other=object, kinds={1, 2})
    found = {name: room.value(name)["value"] for name in ("small", "count", "ratio", "yes", "large")}
    assert found == {"small": 7, "count": 3, "ratio": 0.25, "yes": True, "large": 1 << 80}
    assert room.value("other")["value"] == "<class 'object'>"
    assert room.listed()["kinds"]["kind"] == "value"


def test_a_model_is_described_by_its_parameters(room):
    room.record(model=torch.nn.Linear(3, 2), lazy=torch.nn.LazyLinear(2))
    found = room.value("model")["value"]
    assert (found["class"], found["params"], found["trainable"]) == ("Linear", 8, 8)
    assert [(one["name"], one["shape"]) for one in found["parameters"]] == [("weight", [2, 3]), ("bias", [2])]
    assert room.value("lazy")["value"]["parameters"][0]["shape"] is None


def test_tensors_within_lists_are_described(room):
    room.record(batch=[torch.zeros(1000), torch.ones(2)], net=[torch.nn.ReLU()])
    large, small = room.value("batch")["value"]
    assert large == {"__tensor__": {"shape": [1000], "dtype": "float32"}}
    assert small["__tensor__"]["values"] == [1.0, 1.0]
    assert room.value("net")["value"] == [{"__model__": "ReLU"}]


@pytest.mark.parametrize(
    "value", [None, torch.zeros(0, 3), [], "", {}], ids=["none", "tensor", "list", "text", "dict"]
)
def test_nothing_reads_as_nothing(room, value):
    room.record(x=value)
    assert room.value("x") is None


def test_more_than_the_asker_takes_is_refused(room):
    room.record(x=torch.zeros(100, 100), text="x" * 5000, items=list(range(5000)))
    for port in ("x", "text", "items"):
        with pytest.raises(CodefyError) as refused:
            room.value(port)
        assert refused.value.code == "outputs.too_large"
        assert "max_elements" in refused.value.message
    assert len(room.value("x", max_elements=10_000)["values"]) == 100


def test_steps_that_a_node_showed_are_listed_and_their_tensors_read(room):
    step = {
        "name": "scores",
        "description": "q times k",
        "tensors": {"raw": torch.ones(2, 2)},
        "scalars": {"scale": 0.5},
    }
    room.record(out=1, steps=[step, {"name": "last"}])
    found = json.loads(room.ask(What.STEPS).body)["steps"]
    assert [(one["index"], one["name"]) for one in found] == [(0, "scores"), (1, "last")]
    (tensor,) = found[0]["tensors"]
    assert (tensor["name"], tensor["shape"], found[0]["scalars"]) == ("raw", [2, 2], {"scale": 0.5})
    assert room.value(tensor["port"])["values"] == [[1.0, 1.0], [1.0, 1.0]]
    assert set(room.listed()) == {"out"}


# ------------------------------------------------------------ statistics


def test_statistics_say_how_the_numbers_are_spread(room):
    room.record(x=torch.tensor([0.0, 1.0, 2.0, 3.0, math.nan, math.inf]))
    stats = room.stats("x")
    assert (stats["count"], stats["nan"], stats["infinite"], stats["zeros"]) == (6, 1, 1, 1)
    assert (stats["min"], stats["max"], stats["mean"]) == (0.0, 3.0, 1.5)
    histogram = stats["histogram"]
    assert (len(histogram["counts"]), sum(histogram["counts"])) == (64, 4)
    assert (histogram["low"], histogram["high"]) == (0.0, 3.0)


def test_few_whole_numbers_are_counted_each(room):
    room.record(
        labels=torch.tensor([3, 1, 3, 3]), mask=torch.tensor([True, False, True]), many=torch.arange(100)
    )
    assert room.stats("labels")["values"] == [[1, 1], [3, 3]]
    assert room.stats("mask")["values"] == [[False, 1], [True, 2]]
    assert len(room.stats("many")["histogram"]["counts"]) == 64


def test_many_elements_are_sampled(room):
    room.record(x=torch.zeros(5000))
    stats = room.stats("x")
    assert (stats["count"], stats["sampled"]) == (5000, 100)


def test_a_flat_list_of_numbers_has_statistics_and_a_text_has_none(room):
    room.record(losses=[1.0, 0.5, 0.25], text="abc", mixed=[1, "a"])
    assert room.stats("losses")["min"] == 0.25
    assert room.stats("text") is None
    assert room.stats("mixed") is None


def test_bounds_of_floats_that_overflow_keep_their_moments(room):
    room.record(x=torch.tensor([-1.7e308, 1.7e308], dtype=torch.float64))
    assert room.stats("x")["max"] == 1.7e308
    assert "histogram" not in room.stats("x")


# ------------------------------------------------------------ what can't be copied


class Stubborn(dict):
    def items(self):
        raise RuntimeError("never")


def test_what_can_not_be_copied_is_listed_with_the_reason(room):
    room.record(x=Stubborn(a=1), good=1)
    assert "never" in room.listed()["x"]["elided"]
    assert room.value("good")["value"] == 1


def test_a_value_over_the_bound_is_elided_with_its_size(room, tmp_path):
    small = OutputStore(tmp_path / "outputs", limit_bytes=100_000)
    room.record(store=small, large=torch.zeros(1000, 1000), next="kept", lists=["x" * 1000] * 1000)
    listed = room.listed()
    assert (listed["large"]["bytes"], listed["large"]["shape"]) == (4_000_000, [1000, 1000])
    assert "CODEFYUI_RUN_OUTPUT_STORE_MAX_MB" in listed["large"]["elided"]
    assert listed["lists"]["elided"]
    assert room.value("next")["value"] == "kept"
    with pytest.raises(CodefyError, match="wasn't kept") as refused:
        room.value("large")
    assert refused.value.code == "outputs.not_found"


def test_what_was_not_recorded_is_not_found(room):
    room.record(x=1)
    asked = [("n", "y", "0f3c9d7a"), ("m", "x", "0f3c9d7a"), ("n", "x", "another"), ("n", "x", "../up")]
    for node, port, run_id in asked:
        with pytest.raises(CodefyError) as refused:
            answer(room.store, run_id, Question(what=What.VALUE, node=node, port=port))
        assert refused.value.code == "outputs.not_found"
