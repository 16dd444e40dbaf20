"""The tensor operations agree with torch, and say plainly what doesn't fit."""

import pytest
import torch

from codefyui_core.errors import CodefyError
from codefyui_core.testing.node_context import RecordingContext, execute
from codefyui_nodes_torch.base import UnfitError
from codefyui_nodes_torch.steps import STEPS
from codefyui_nodes_torch.tensor.arithmetic import Add, MatMul, Multiply, ScalarMultiply
from codefyui_nodes_torch.tensor.create import TensorCreate
from codefyui_nodes_torch.tensor.reduction import Argmax, Mean, Softmax
from codefyui_nodes_torch.tensor.shape import Permute, Split, Squeeze, Stack, Unsqueeze


@pytest.fixture
def a():
    return torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def b():
    return torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("node", "params", "reference"),
    [
        (Add, {"alpha": -2.5}, lambda a, b: torch.add(a, b, alpha=-2.5)),
        (Multiply, {}, torch.mul),
        (MatMul, {}, torch.matmul),
        (Stack, {"dim": 1}, lambda a, b: torch.stack((a, b), 1)),
        (Stack, {"dim": -1}, lambda a, b: torch.stack((a, b), -1)),
    ],
)
def test_two_tensors_are_combined_as_torch_does(node, params, reference, a, b):
    if node is MatMul:
        b = b.transpose(1, 2)
    out = execute(node, {"tensor_a": a, "tensor_b": b}, **params)["tensor"]
    assert torch.equal(out, reference(a, b))


@pytest.mark.parametrize(
    ("node", "params", "reference"),
    [
        (ScalarMultiply, {"scalar": 0.5}, lambda x: x * 0.5),
        (Mean, {"dim": "0, 2"}, lambda x: x.mean((0, 2))),
        (Mean, {"dim": "-1", "keepdim": True}, lambda x: x.mean(-1, keepdim=True)),
        (Argmax, {"dim": 1}, lambda x: x.argmax(1)),
        (Argmax, {"keepdim": True}, lambda x: x.argmax(-1, keepdim=True)),
        (Softmax, {"dim": 0}, lambda x: torch.softmax(x, 0)),
        (Permute, {"dims": "2,0,1"}, lambda x: x.permute(2, 0, 1)),
        (Permute, {"dims": "-1,0,1"}, lambda x: x.permute(2, 0, 1)),
        (Unsqueeze, {"dim": 2}, lambda x: x.unsqueeze(2)),
    ],
)
def test_one_tensor_is_computed_as_torch_does(node, params, reference, a):
    assert torch.equal(execute(node, {"tensor": a}, **params)["tensor"], reference(a))


def test_shapes_broadcast(a):
    row = torch.arange(4.0)
    assert torch.equal(execute(Add, {"tensor_a": a, "tensor_b": row})["tensor"], a + row)
    assert torch.equal(execute(Multiply, {"tensor_a": a, "tensor_b": row})["tensor"], a * row)


def test_a_product_of_mixed_dtypes_has_the_wider_one():
    whole, fractions = torch.tensor([[1, 2]]), torch.tensor([[0.5], [0.25]], dtype=torch.float64)
    out = execute(MatMul, {"tensor_a": whole, "tensor_b": fractions})["tensor"]
    assert torch.equal(out, torch.tensor([[1.0]], dtype=torch.float64))


@pytest.mark.parametrize("alpha", [1.0, 3.0, -2.0])
def test_add_keeps_whole_numbers_whole_for_a_whole_alpha(alpha):
    left, right = torch.tensor([1, 2]), torch.tensor([10, 20])
    out = execute(Add, {"tensor_a": left, "tensor_b": right}, alpha=alpha)["tensor"]
    assert torch.equal(out, left + int(alpha) * right)
    assert out.dtype is torch.int64


def test_add_of_whole_numbers_with_a_fraction_becomes_float():
    out = execute(Add, {"tensor_a": torch.tensor([1]), "tensor_b": torch.tensor([3])}, alpha=0.5)["tensor"]
    assert torch.equal(out, torch.tensor([2.5]))


def test_add_of_bools_counts_when_alpha_is_not_one():
    true = torch.tensor([True])
    assert torch.equal(execute(Add, {"tensor_a": true, "tensor_b": true})["tensor"], true + true)
    assert torch.equal(
        execute(Add, {"tensor_a": true, "tensor_b": true}, alpha=2)["tensor"], torch.tensor([3])
    )


@pytest.mark.parametrize("node", [Mean, Softmax])
def test_whole_numbers_are_reduced_as_floats(node):
    whole = torch.tensor([[1, 2], [5, 6]])
    params = {"dim": "0"} if node is Mean else {"dim": 0}
    expected = execute(node, {"tensor": whole.float()}, **params)["tensor"]
    assert torch.equal(execute(node, {"tensor": whole}, **params)["tensor"], expected)


def test_argmax_takes_numbers_that_are_no_tensor():
    assert execute(Argmax, {"tensor": [3, 9, 1]})["tensor"].item() == 1
    assert execute(Argmax, {"tensor": torch.tensor([False, True])})["tensor"].item() == 1


@pytest.mark.parametrize(
    ("shape", "dim", "expected"),
    [
        ((1, 3, 1), -1, (1, 3)),
        ((1, 3, 1), 0, (3, 1)),
        ((1, 3, 1), 1, (1, 3, 1)),
        ((1, 1, 4), -1, (1, 1, 4)),
    ],
)
def test_squeeze_removes_the_named_axis_only(shape, dim, expected):
    assert execute(Squeeze, {"tensor": torch.zeros(shape)}, dim=dim)["tensor"].shape == expected


@pytest.mark.parametrize(("chunks", "dim"), [(1, 0), (2, 0), (3, 0), (2, 1), (4, -1)])
def test_split_gives_the_pieces_of_torch_chunk(chunks, dim):
    tensor = torch.arange(6 * 4).reshape(6, 4)
    out = execute(Split, {"tensor": tensor}, chunks=chunks, dim=dim)
    expected = tensor.chunk(chunks, dim)
    assert list(out) == [f"chunk_{n}" for n in range(chunks)]
    assert all(torch.equal(out[f"chunk_{n}"], piece) for n, piece in enumerate(expected))


def test_split_refuses_to_leave_an_output_empty():
    with pytest.raises(UnfitError, match=r"\(5,\).*makes 3 pieces on axis 0, not 4; set chunks to 3"):
        execute(Split, {"tensor": torch.zeros(5)}, chunks=4)


@pytest.mark.parametrize("fill", ["zeros", "ones"])
def test_constants_have_the_shape_and_float32(fill):
    out = execute(TensorCreate, shape="2, 3", fill=fill)["tensor"]
    assert torch.equal(out, getattr(torch, fill)(2, 3))
    assert out.dtype is torch.float32


def test_full_is_float32_even_for_a_whole_value():
    out = execute(TensorCreate, shape="1", fill="full", value=50)["tensor"]
    assert torch.equal(out, torch.tensor([50.0]))
    assert out.dtype is torch.float32


def test_arange_counts_through_the_whole_shape():
    out = execute(TensorCreate, shape="2,3", fill="arange")["tensor"]
    assert torch.equal(out, torch.arange(6.0).reshape(2, 3))


def test_requires_grad_is_set():
    assert execute(TensorCreate, shape="2", requires_grad=True)["tensor"].requires_grad
    assert not execute(TensorCreate, shape="2")["tensor"].requires_grad


@pytest.mark.parametrize("fill", ["randn", "rand"])
def test_random_tensors_follow_the_seed_of_the_run(fill, tmp_path):
    def draw(seed):
        context = RecordingContext(root=tmp_path, seed=seed)
        return execute(TensorCreate, {}, context, shape="3,4", fill=fill)["tensor"], context

    first, context = draw(7)
    expected = getattr(torch, fill)(3, 4, generator=context.generator("fill"))
    assert torch.equal(first, expected)
    assert torch.equal(first, draw(7)[0])
    assert not torch.equal(first, draw(8)[0])
    assert not torch.equal(draw(None)[0], draw(None)[0])


def test_only_random_tensors_are_kept_out_of_the_cache(tmp_path):
    def mark(fill):
        return TensorCreate.fingerprint({"fill": fill}, RecordingContext(root=tmp_path).folders)

    assert mark("zeros") is None
    assert mark("randn") != mark("randn")


def test_a_tensor_is_made_on_the_device_of_the_run(tmp_path):
    context = RecordingContext(root=tmp_path, device="meta")
    assert execute(TensorCreate, {}, context, shape="2", fill="arange")["tensor"].device.type == "meta"


def test_softmax_shows_its_steps_in_a_verbose_run(a, tmp_path):
    context = RecordingContext(root=tmp_path, verbose=True)
    out = execute(Softmax, {"tensor": a}, context)
    steps = {step["name"]: step["tensors"] for step in out[STEPS]}
    assert list(steps) == ["logits", "max_subtract", "exp", "partition", "divide"]
    assert torch.equal(steps["max_subtract"]["shifted"], a - a.amax(-1, keepdim=True))
    assert torch.allclose(steps["exp"]["exp"] / steps["partition"]["sum"], out["tensor"])
    assert torch.equal(steps["divide"]["output"], out["tensor"])


def test_no_steps_in_a_run_that_is_not_verbose(a):
    assert list(execute(Softmax, {"tensor": a})) == ["tensor"]


@pytest.mark.parametrize(
    ("node", "inputs", "params", "message"),
    [
        (
            Add,
            {"tensor_a": torch.zeros(2), "tensor_b": torch.zeros(3)},
            {},
            r"Add: tensor_a \(2,\).*tensor_b \(3,\)",
        ),
        (
            MatMul,
            {"tensor_a": torch.zeros(2, 3), "tensor_b": torch.zeros(2, 3)},
            {},
            r"MatMul: tensor_a \(2, 3\)",
        ),
        (Stack, {"tensor_a": torch.zeros(2), "tensor_b": torch.zeros(3)}, {}, r"Stack: tensor_a \(2,\)"),
        (Add, {"tensor_a": torch.zeros(2)}, {}, "Add: tensor_b needs a tensor; it got nothing"),
        (Add, {"tensor_a": "text", "tensor_b": torch.zeros(1)}, {}, "tensor_a needs a tensor; it got str"),
        (Argmax, {"tensor": [[1, 2], [3]]}, {}, "tensor needs a tensor or numbers; it got list"),
        (Mean, {"tensor": torch.zeros(2, 3)}, {"dim": "5"}, r"Mean: tensor \(2, 3\)"),
        (Mean, {"tensor": torch.zeros(2)}, {"dim": "x"}, "Mean: dim needs whole numbers"),
        (Mean, {"tensor": torch.zeros(2)}, {"dim": ""}, "Mean: dim is empty"),
        (Softmax, {"tensor": torch.zeros(2)}, {"dim": 3}, r"Softmax: tensor \(2,\)"),
        (Permute, {"tensor": torch.zeros(2, 3)}, {"dims": "0,2,1"}, r"dims must name each of the 2 axes"),
        (Permute, {"tensor": torch.zeros(2, 3)}, {"dims": "0,0"}, r"tensor \(2, 3\)"),
        (Squeeze, {"tensor": torch.zeros(2)}, {"dim": 4}, r"Squeeze: tensor \(2,\)"),
        (Unsqueeze, {"tensor": torch.zeros(2)}, {"dim": 4}, r"Unsqueeze: tensor \(2,\)"),
        (Split, {"tensor": torch.zeros(2)}, {"dim": 4}, r"Split: tensor \(2,\)"),
        (TensorCreate, {}, {"shape": "2,-1"}, "shape can't have a negative size"),
        (TensorCreate, {}, {"shape": "2x3"}, "TensorCreate: shape needs whole numbers.*'2x3'"),
    ],
)
def test_what_does_not_fit_is_named(node, inputs, params, message):
    with pytest.raises(ValueError, match=message) as caught:
        execute(node, inputs, **params)
    assert isinstance(caught.value, CodefyError)


def test_a_trailing_comma_in_a_shape_is_fine():
    assert execute(TensorCreate, shape="2,")["tensor"].shape == (2,)


def test_gradients_pass(a):
    a.requires_grad_()
    execute(Mean, {"tensor": execute(ScalarMultiply, {"tensor": a}, scalar=3.0)["tensor"]}, dim="0,1,2")[
        "tensor"
    ].backward()
    assert torch.allclose(a.grad, torch.full_like(a, 3 / 24))


@pytest.mark.parametrize("node", [Add, Multiply, MatMul])
def test_inputs_are_left_as_they_were(node):
    left, right = torch.ones(2, 2), torch.full((2, 2), 2.0)
    execute(node, {"tensor_a": left, "tensor_b": right})
    assert torch.equal(left, torch.ones(2, 2))
    assert torch.equal(right, torch.full((2, 2), 2.0))
