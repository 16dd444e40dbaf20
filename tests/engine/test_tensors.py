"""What the engine does with torch: moving inputs, describing outputs, seeding, and telling its failures apart."""

import math

import pytest

from codefyui_core.engine import Limits
from codefyui_core.engine.failures import NodeFailure, cause_of
from codefyui_core.engine.run import deterministic
from codefyui_core.engine.seeds import derive, seed_libraries
from codefyui_core.engine.summaries import Summaries
from codefyui_core.engine.tensors import aligned, usable
from codefyui_core.plugin.node import Port

torch = pytest.importorskip("torch")


@pytest.fixture
def describe(tmp_path):
    def one(value, **limits):
        summaries = Summaries(Limits(**limits), tmp_path / "models")
        ports = (Port(name="out", type="ANY"),)
        (entry,) = summaries.of(ports, {"out": value}, (), verbose=False)
        assert entry["port"] == "out"
        return entry["output_kind"], entry[entry["output_kind"]]

    return one


def test_tensors_are_described_by_shape_type_and_statistics(describe):
    kind, found = describe(torch.arange(6, dtype=torch.float32).reshape(2, 3))
    assert kind == "tensor_summary"
    assert found == {
        "shape": [2, 3],
        "dtype": "float32",
        "min": 0.0,
        "max": 5.0,
        "mean": 2.5,
        "values": [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]],
    }
    assert describe(torch.tensor([1, 2, 4]))[1]["mean"] == pytest.approx(7 / 3, rel=1e-5)
    assert describe(torch.tensor([True, False]))[1] | {"values": None} == {
        "shape": [2],
        "dtype": "bool",
        "min": 0.0,
        "max": 1.0,
        "mean": 0.5,
        "values": None,
    }


@pytest.mark.parametrize(
    "tensor",
    [
        torch.empty(0, 3),
        torch.tensor(1.5),
        torch.ones(3, requires_grad=True) * 2,
        torch.tensor([1 + 2j]),
        torch.eye(3).to_sparse(),
        torch.ones(4, dtype=torch.bfloat16),
        torch.zeros(2, device="meta"),
        torch.nn.Parameter(torch.ones(2)),
        torch.tensor([2**62, 2**62]),
    ],
    ids=str,
)
def test_every_kind_of_tensor_has_a_description(describe, tensor):
    kind, found = describe(tensor)
    assert kind == "tensor_summary"
    assert found["shape"] == list(tensor.shape)


def test_numbers_that_are_not_finite_are_objects(describe):
    found = describe(torch.tensor([math.nan, math.inf, 1.0]))[1]
    assert found["values"] == [{"__float__": "nan"}, {"__float__": "inf"}, 1.0]
    assert found["mean"] == {"__float__": "nan"}
    assert describe(-math.inf) == ("scalar", {"__float__": "-inf"})


def test_statistics_of_large_tensors_come_from_a_sample(describe):
    found = describe(torch.ones(10_000), sample_from=1000, sample_size=100)[1]
    assert found["sampled"] == 100
    assert found["mean"] == 1.0
    assert "values" not in found


def test_modules_texts_and_lists_are_described(describe, tmp_path):
    assert describe(torch.nn.Linear(2, 3)) == (
        "model_summary",
        {"class": "Linear", "params": 9, "trainable": 9},
    )
    assert describe(torch.nn.LazyLinear(3))[1]["params"] == 0
    frozen = torch.nn.Linear(2, 3).requires_grad_(False)
    assert describe(frozen)[1]["trainable"] == 0
    kind, text = describe("x" * 1000)
    assert (kind, text["value"], text["length"]) == ("string", "x" * 200, 1000)
    (tmp_path / "models").mkdir()
    (tmp_path / "models/m.pt").write_text("")
    assert describe(str(tmp_path / "models/m.pt"))[1]["download_path"] == "m.pt"
    assert "download_path" not in describe(str(tmp_path / "other.pt"))[1]
    kind, items = describe([1, (2, 3.5), "a"])
    assert (kind, items["length"], items["values"]) == ("list", 3, [1, [2, 3.5], "a"])
    assert "values" not in describe([torch.ones(1)])[1]


def test_a_value_whose_repr_fails_does_not_fail_the_run(describe):
    class Rude:
        def __repr__(self):
            raise RuntimeError

    kind, text = describe(Rude())
    assert kind == "value"
    assert "Rude" in text


def test_steps_are_told_in_verbose_runs_only(tmp_path):
    result = {
        "__steps__": [{"name": "a", "description": "b", "tensors": {"t": torch.ones(2)}, "scalars": {"s": 1}}]
    }
    summaries = Summaries(Limits(), tmp_path)
    assert summaries.of((), result, (), verbose=False) == []
    (entry,) = summaries.of((), result, (), verbose=True)
    (step,) = entry["steps"]
    assert step["tensors"]["t"]["mean"] == 1.0
    assert step["scalars"] == {"s": 1}


def test_only_what_has_to_move_is_moved():
    tensor, model = torch.ones(2), torch.nn.Linear(1, 1)
    value = {"a": [tensor, model], "b": (tensor, 1)}
    assert aligned(value, "cpu") is value
    moved = aligned(value, "meta")
    assert moved["a"][0].device.type == moved["b"][0].device.type == "meta"
    assert moved["a"][1] is model
    assert next(model.parameters()).device.type == "cpu"
    assert value["a"][0] is tensor


def test_a_device_that_is_not_here_is_the_cpu():
    assert usable("cpu") == "cpu"
    if not torch.cuda.is_available():
        assert usable("cuda:7") == "cpu"


def test_seeding_reaches_every_library_and_derived_seeds_differ():
    import random

    import numpy as np

    def draw():
        return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002  what nodes may use

    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    try:
        seed_libraries(3, "cpu")
        first = draw()
        seed_libraries(3, "cpu")
        assert draw() == first
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.set_rng_state(before[2])
    seeds = {derive(1, "a"), derive(2, "a"), derive(1, "b"), derive(1, "a", "x")}
    assert len(seeds) == 4
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_a_full_device_memory_has_its_own_cause_however_deep_it_lies():
    def raised(error):
        try:
            raise RuntimeError("outer") from error
        except RuntimeError as outer:
            return outer

    memory = torch.OutOfMemoryError("CUDA out of memory")
    assert cause_of(memory) == cause_of(raised(memory)) == "cuda_oom"
    assert cause_of(NodeFailure("m", "Map", NodeFailure("n", "X", memory))) == "cuda_oom"
    assert cause_of(raised(OSError(28, "full"))) == "disk_full"
    assert cause_of(ValueError()) == "user_code"


def test_deterministic_algorithms_are_on_during_the_run_only(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    before = torch.are_deterministic_algorithms_enabled()
    with deterministic(on=True):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert torch.are_deterministic_algorithms_enabled() == before
