"""Layers with weights agree with torch.nn, follow the run's seed and device, and name what doesn't fit."""

import pytest
import torch
from torch import nn

from codefyui_core.errors import CodefyError
from codefyui_core.testing.node_context import RecordingContext, execute
from codefyui_nodes_torch.cnn.batch_norm import BatchNorm2d
from codefyui_nodes_torch.cnn.convolution import Conv1d, Conv2d, ConvTranspose2d
from codefyui_nodes_torch.normalization.layers import BatchNorm1d, GroupNorm, InstanceNorm2d, LayerNorm
from codefyui_nodes_torch.steps import STEPS
from codefyui_nodes_torch.utility.layers import Embedding, Linear
from codefyui_nodes_torch.weights import seeded

CASES = [
    pytest.param(
        Conv1d,
        {"in_channels": 2, "out_channels": 3, "kernel_size": 4, "stride": 2, "padding": 1},
        lambda: nn.Conv1d(2, 3, 4, 2, 1),
        (5, 2, 9),
        id="Conv1d",
    ),
    pytest.param(
        Conv2d,
        {"in_channels": 2, "out_channels": 3, "kernel_size": 3, "stride": 2, "padding": 0},
        lambda: nn.Conv2d(2, 3, 3, 2, 0),
        (2, 2, 7, 6),
        id="Conv2d",
    ),
    pytest.param(
        Conv2d,
        {"in_channels": 2, "out_channels": 3},
        lambda: nn.Conv2d(2, 3, 3, 1, 1),
        (2, 7, 6),
        id="Conv2d-without-batch",
    ),
    pytest.param(
        ConvTranspose2d,
        {"in_channels": 4, "out_channels": 2, "stride": 3, "padding": 1, "output_padding": 2},
        lambda: nn.ConvTranspose2d(4, 2, 2, 3, 1, 2),
        (2, 4, 5, 6),
        id="ConvTranspose2d",
    ),
    pytest.param(BatchNorm2d, {"num_features": 3}, lambda: nn.BatchNorm2d(3), (4, 3, 5, 5), id="BatchNorm2d"),
    pytest.param(BatchNorm1d, {"num_features": 3}, lambda: nn.BatchNorm1d(3), (4, 3), id="BatchNorm1d"),
    pytest.param(
        BatchNorm1d, {"num_features": 3}, lambda: nn.BatchNorm1d(3), (4, 3, 6), id="BatchNorm1d-length"
    ),
    pytest.param(
        GroupNorm, {"num_groups": 2, "num_channels": 6}, lambda: nn.GroupNorm(2, 6), (3, 6, 4), id="GroupNorm"
    ),
    pytest.param(
        InstanceNorm2d, {"num_features": 2}, lambda: nn.InstanceNorm2d(2), (3, 2, 4, 4), id="InstanceNorm2d"
    ),
    pytest.param(
        InstanceNorm2d,
        {"num_features": 2, "affine": True},
        lambda: nn.InstanceNorm2d(2, affine=True),
        (3, 2, 4, 4),
        id="InstanceNorm2d-affine",
    ),
    pytest.param(
        LayerNorm,
        {"normalized_shape": "4, 5", "eps": 0.1},
        lambda: nn.LayerNorm((4, 5), eps=0.1),
        (3, 4, 5),
        id="LayerNorm",
    ),
    pytest.param(
        Linear, {"in_features": 4, "out_features": 2}, lambda: nn.Linear(4, 2), (3, 5, 4), id="Linear"
    ),
]


@pytest.fixture
def context(tmp_path):
    return RecordingContext(root=tmp_path, seed=3)


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5)).to(dtype)


@pytest.mark.parametrize(("node", "params", "reference", "shape"), CASES)
def test_a_layer_computes_what_torch_does_with_weights_from_the_seed(node, params, reference, shape, context):
    torch.manual_seed(99)
    before = torch.random.get_rng_state()
    out = execute(node, {"tensor": normal(*shape)}, context, **params)["tensor"]
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(context.derive_seed("weights"))
    assert torch.equal(out, reference()(normal(*shape)))
    assert torch.equal(out, execute(node, {"tensor": normal(*shape)}, context, **params)["tensor"])


@pytest.mark.parametrize(("node", "params", "reference", "shape"), CASES)
def test_a_layer_of_an_unseeded_run_draws_from_torch_itself(node, params, reference, shape, tmp_path):
    torch.manual_seed(11)
    out = execute(node, {"tensor": normal(*shape)}, RecordingContext(root=tmp_path), **params)["tensor"]
    torch.manual_seed(11)
    assert torch.equal(out, reference()(normal(*shape)))


@pytest.mark.parametrize(("node", "params", "reference", "shape"), CASES)
def test_weights_lie_on_the_device_of_the_run(node, params, reference, shape, tmp_path):
    context = RecordingContext(root=tmp_path, device="meta")
    out = execute(node, {"tensor": torch.empty(shape, device="meta")}, context, **params)["tensor"]
    assert out.device.type == "meta"


@pytest.mark.parametrize(("node", "params", "reference", "shape"), CASES)
def test_weights_take_the_dtype_of_the_input(node, params, reference, shape, context):
    single = execute(node, {"tensor": normal(*shape)}, context, **params)["tensor"]
    double = execute(node, {"tensor": normal(*shape, dtype=torch.float64)}, context, **params)["tensor"]
    assert double.dtype is torch.float64
    assert torch.allclose(single, double.float(), atol=1e-5)


@pytest.mark.parametrize(("node", "params", "reference", "shape"), CASES)
def test_whole_numbers_come_in_as_floats_and_stay_as_they_were(node, params, reference, shape, context):
    whole = (normal(*shape) * 10).to(torch.int64)
    kept = whole.clone()
    out = execute(node, {"tensor": whole}, context, **params)["tensor"]
    assert torch.equal(out, execute(node, {"tensor": whole.float()}, context, **params)["tensor"])
    assert torch.equal(whole, kept)


@pytest.mark.parametrize("node", [*dict.fromkeys(case.values[0] for case in CASES), Embedding])
def test_layers_are_stateful_and_never_cached(node):
    assert node.stateful
    assert not node.cacheable


def test_two_nodes_of_one_run_have_different_weights(tmp_path):
    outs = [
        execute(
            Linear,
            {"tensor": normal(2, 4)},
            RecordingContext(root=tmp_path, seed=3, node_id=name),
            in_features=4,
        )["tensor"]
        for name in ("one", "two")
    ]
    assert not torch.equal(*outs)


def test_gradients_reach_the_input(context):
    tensor = normal(2, 4).requires_grad_()
    execute(Linear, {"tensor": tensor}, context, in_features=4)["tensor"].sum().backward()
    assert tensor.grad is not None


@pytest.mark.parametrize("padding", [-1, -7, 0, 4])
def test_embedding_looks_up_the_rows_of_a_seeded_table(padding, context):
    indices = torch.tensor([[0, 4], [2, 2]])
    params = {"num_embeddings": 5, "embedding_dim": 3, "padding_idx": padding}
    out = execute(Embedding, {"tensor": indices}, context, **params)["tensor"]
    with seeded(context, "weights"):
        table = nn.Embedding(5, 3, padding_idx=padding if padding >= 0 else None)
    assert torch.equal(out, table(indices))
    assert torch.equal(execute(Embedding, {"tensor": indices.float()}, context, **params)["tensor"], out)
    assert torch.equal(execute(Embedding, {"tensor": indices.tolist()}, context, **params)["tensor"], out)


def test_embedding_of_nothing_is_empty(context):
    out = execute(Embedding, {"tensor": torch.empty(0, dtype=torch.int64)}, context, embedding_dim=3)
    assert out["tensor"].shape == (0, 3)


def steps_of(node, tensor, tmp_path, **params):
    context = RecordingContext(root=tmp_path, seed=3, verbose=True)
    out = execute(node, {"tensor": tensor}, context, **params)
    assert all(not t.requires_grad for step in out[STEPS] for t in step["tensors"].values())
    assert all(step["description"] for step in out[STEPS])
    return {step["name"]: step for step in out[STEPS]}, out["tensor"]


@pytest.mark.parametrize(
    ("node", "params", "shape", "axes", "names"),
    [
        (
            BatchNorm2d,
            {"num_features": 3},
            (4, 3, 5, 5),
            (0, 2, 3),
            ["input", "per_channel_mean", "per_channel_var", "normalize", "scale_shift"],
        ),
        (
            LayerNorm,
            {"normalized_shape": "4,5"},
            (3, 4, 5),
            (-2, -1),
            ["input", "compute_mean", "compute_var", "normalize", "scale_shift"],
        ),
    ],
)
def test_normalization_steps_lead_to_the_output_of_the_layer(node, params, shape, axes, names, tmp_path):
    tensor = normal(*shape)
    steps, output = steps_of(node, tensor, tmp_path, **params)
    assert list(steps) == names
    mean, variance, normalized, last = (steps[name]["tensors"] for name in names[1:])
    assert torch.allclose(mean["mean"], tensor.mean(axes, keepdim=True))
    assert torch.allclose(variance["var"], tensor.var(axes, keepdim=True, correction=0))
    assert steps[names[1]]["scalars"] == {"eps": 1e-5}
    assert torch.equal(last["output"], output)
    if node is LayerNorm:
        shown = last["gamma"] * normalized["normalized"] + last["beta"]
    else:
        shape = (1, -1, 1, 1)
        shown = last["gamma"].view(shape) * normalized["normalized"] + last["beta"].view(shape)
    assert torch.allclose(shown, output, atol=1e-5)


def test_linear_steps_hold_the_weights_that_were_used(tmp_path):
    tensor = normal(2, 4)
    steps, output = steps_of(Linear, tensor, tmp_path, in_features=4, out_features=3)
    assert list(steps) == ["input", "weight_matrix", "bias_vector", "linear_output"]
    weight = steps["weight_matrix"]["tensors"]["weight"]
    assert torch.allclose(tensor @ weight.T + steps["bias_vector"]["tensors"]["bias"], output, atol=1e-6)
    assert torch.equal(steps["linear_output"]["tensors"]["output"], output)


def test_convolution_steps_hold_the_weights_that_were_used(tmp_path):
    tensor = normal(1, 1, 5, 5)
    steps, output = steps_of(Conv2d, tensor, tmp_path, out_channels=2)
    assert list(steps) == ["input_tensor", "kernel_weights", "convolved_output"]
    kernel = steps["kernel_weights"]["tensors"]
    shown = nn.functional.conv2d(tensor, kernel["weight"], kernel["bias"], padding=1)
    assert torch.allclose(shown, output, atol=1e-6)


def test_embedding_steps_hold_the_table_that_was_used(tmp_path):
    indices = torch.tensor([2, 0])
    steps, output = steps_of(Embedding, indices, tmp_path, num_embeddings=3, embedding_dim=2)
    assert list(steps) == ["indices", "embedding_table", "lookup"]
    assert torch.equal(steps["embedding_table"]["tensors"]["table"][indices], output)


def test_a_layer_without_a_trace_gives_no_steps(tmp_path):
    context = RecordingContext(root=tmp_path, verbose=True)
    out = execute(GroupNorm, {"tensor": normal(2, 4)}, context, num_groups=2, num_channels=4)
    assert list(out) == ["tensor"]


@pytest.mark.parametrize(
    ("node", "tensor", "params", "message"),
    [
        (
            Conv2d,
            torch.zeros(4, 4),
            {},
            r"Conv2d: tensor needs the shape \(N, C, H, W\) or \(C, H, W\).*\(4, 4\)",
        ),
        (
            Conv2d,
            torch.zeros(1, 3, 4, 4),
            {},
            r"needs 1 on axis -3, as in_channels says; it got \(1, 3, 4, 4\)",
        ),
        (Conv2d, torch.zeros(1, 1, 4, 4), {"kernel_size": 0}, "kernel_size must be at least 1; it is 0"),
        (
            Conv2d,
            torch.zeros(1, 1, 2, 2),
            {"kernel_size": 9},
            r"tensor \(1, 1, 2, 2\) float32 can't be computed",
        ),
        (Conv2d, torch.zeros(1, 1, 4, 4), {"padding": -1}, "Conv2d: .*negative padding"),
        (Conv1d, torch.zeros(4), {}, r"Conv1d: tensor needs the shape \(N, C, L\)"),
        (ConvTranspose2d, torch.zeros(1, 64, 2, 2), {"output_padding": 5}, "output padding must be smaller"),
        (BatchNorm2d, torch.zeros(2, 3), {}, r"BatchNorm2d: tensor needs the shape \(N, C, H, W\)"),
        (BatchNorm2d, torch.zeros(1, 32, 1, 1), {}, "one value a channel, which has no variance"),
        (BatchNorm1d, torch.zeros(1, 128), {}, "one value a feature, which has no variance"),
        (BatchNorm1d, torch.zeros(4, 3), {}, "needs 128 on axis 1, as num_features says"),
        (GroupNorm, torch.zeros(2, 6), {"num_groups": 4, "num_channels": 6}, "num_groups 4 doesn't divide"),
        (
            GroupNorm,
            torch.zeros(6),
            {"num_groups": 2, "num_channels": 6},
            "needs 6 on axis 1, as num_channels",
        ),
        (InstanceNorm2d, torch.zeros(2, 64, 1, 1), {}, "one pixel a channel"),
        (InstanceNorm2d, torch.zeros(2, 3, 4, 4), {}, "needs 64 on axis -3, as num_features says"),
        (LayerNorm, torch.zeros(2, 3), {"normalized_shape": "4,3"}, r"must end in the sizes \(4, 3\)"),
        (LayerNorm, torch.zeros(2, 3), {"normalized_shape": "3;"}, "normalized_shape needs whole numbers"),
        (Linear, torch.zeros(2, 3), {}, r"needs 512 on axis -1, as in_features says; it got \(2, 3\)"),
        (Linear, torch.tensor(1.0), {}, "in_features"),
        (Linear, None, {}, "tensor needs a tensor; it got nothing"),
        (Embedding, torch.tensor([0.5]), {}, "needs whole numbers"),
        (Embedding, torch.tensor([7]), {"num_embeddings": 5}, "from 7 to 7; num_embeddings 5 allows 0 to 4"),
        (Embedding, torch.tensor([-1]), {"num_embeddings": 5}, "from -1 to -1"),
        (
            Embedding,
            torch.tensor([1]),
            {"num_embeddings": 5, "padding_idx": 5},
            "Embedding: .*[Pp]adding_idx",
        ),
    ],
)
def test_what_does_not_fit_is_named(node, tensor, params, message, context):
    with pytest.raises(ValueError, match=message) as caught:
        execute(node, {"tensor": tensor}, context, **params)
    assert isinstance(caught.value, CodefyError)
