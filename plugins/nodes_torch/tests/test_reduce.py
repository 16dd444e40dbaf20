"""Reduce combines the items of a list as torch would combine the stacked tensors."""

import pytest
import torch

from codefyui_core.testing.node_context import execute
from codefyui_nodes_torch.flow.reduce import Reduce


@pytest.fixture
def tensors():
    return list(torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(1)))


@pytest.mark.parametrize(
    ("params", "reference"),
    [
        ({"operation": "sum"}, lambda x: torch.stack(x).sum(0)),
        ({}, lambda x: torch.stack(x).mean(0)),
        ({"operation": "min"}, lambda x: torch.stack(x).amin(0)),
        ({"operation": "max"}, lambda x: torch.stack(x).amax(0)),
        ({"operation": "sum", "dim": 5}, lambda x: torch.stack(x).sum(0)),
        ({"operation": "concat", "dim": 1}, lambda x: torch.cat(x, 1)),
        ({"operation": "stack", "dim": -1}, lambda x: torch.stack(x, -1)),
        ({"operation": "first"}, lambda x: x[0]),
        ({"operation": "last"}, lambda x: x[-1]),
    ],
)
def test_tensors_are_combined_as_torch_does(params, reference, tensors):
    out = execute(Reduce, {"items": tensors}, **params)
    assert torch.equal(out["result"], reference(tensors))
    assert (out["count"], type(out["count"])) == (3.0, float)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("sum", 6.5),
        ("mean", 6.5 / 3),
        ("min", 1.0),
        ("max", 3.5),
        ("concat", [1.0, 2.0, 3.5]),
        ("stack", [1.0, 2.0, 3.5]),
    ],
)
def test_numbers_are_float32_scalars(operation, expected):
    out = execute(Reduce, {"items": (True, 2, 3.5)}, operation=operation)["result"]
    assert torch.allclose(out, torch.tensor(expected))
    assert out.dtype is torch.float32


def test_the_mean_of_whole_number_tensors_is_a_fraction():
    out = execute(Reduce, {"items": [torch.tensor([1, 2]), torch.tensor([2, 4])]})["result"]
    assert torch.equal(out, torch.tensor([1.5, 3.0]))


def test_whole_number_tensors_sum_to_whole_numbers():
    out = execute(Reduce, {"items": [torch.tensor([1]), torch.tensor([2])]}, operation="sum")["result"]
    assert torch.equal(out, torch.tensor([3]))


@pytest.mark.parametrize("operation", ["first", "last"])
def test_an_item_of_any_kind_can_be_picked(operation):
    items = [{"a": 1}, "text"]
    expected = items[0] if operation == "first" else items[1]
    assert execute(Reduce, {"items": items}, operation=operation)["result"] is expected


def test_items_are_left_as_they_were(tensors):
    kept = [tensor.clone() for tensor in tensors]
    execute(Reduce, {"items": tensors}, operation="sum")
    assert all(torch.equal(*pair) for pair in zip(tensors, kept, strict=True))


@pytest.mark.parametrize(
    ("items", "params", "message"),
    [
        ([], {}, "items needs a list with at least one item; it got an empty one"),
        (None, {}, "it got nothing"),
        (torch.zeros(3), {}, r"it got \(3,\) float32"),
        ([1.0, "two"], {}, r"items\[1\] must be a tensor or a number; it is str"),
        ([torch.zeros(2), torch.zeros(3)], {}, r"items\[0\] \(2,\) float32, items\[1\] \(3,\) float32"),
        ([torch.zeros(2)], {"operation": "concat", "dim": 3}, r"items\[0\] \(2,\)"),
    ],
)
def test_what_does_not_fit_is_named(items, params, message):
    with pytest.raises(ValueError, match=f"Reduce: .*{message}"):
        execute(Reduce, {"items": items}, **params)
