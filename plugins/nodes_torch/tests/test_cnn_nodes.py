"""Activations, pooling, dropout and wired kernels agree with torch.nn.functional."""

import pytest
import torch
from torch.nn import functional

from codefyui_core.testing.node_context import RecordingContext, execute
from codefyui_nodes_torch.cnn.activation import FUNCTIONS, Activation
from codefyui_nodes_torch.cnn.dropout import Dropout
from codefyui_nodes_torch.cnn.kernel import PRESETS, Conv2dExplicit, Conv2dKernel
from codefyui_nodes_torch.cnn.pooling import AdaptiveAvgPool2d, AvgPool2d, MaxPool2d


def normal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


REFERENCES = {
    "relu": torch.nn.ReLU(),
    "sigmoid": torch.nn.Sigmoid(),
    "tanh": torch.nn.Tanh(),
    "leaky_relu": torch.nn.LeakyReLU(0.01),
    "elu": torch.nn.ELU(1.0),
    "gelu": torch.nn.GELU(approximate="none"),
    "silu": torch.nn.SiLU(),
    "mish": torch.nn.Mish(),
    "selu": torch.nn.SELU(),
    "softmax": torch.nn.Softmax(dim=-1),
    "hardswish": torch.nn.Hardswish(),
    "prelu": torch.nn.PReLU(init=0.25),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_activation_is_the_function_of_torch_on_a_copy(name):
    tensor = normal(3, 7)
    kept = tensor.clone()
    out = execute(Activation, {"tensor": tensor}, function=name)["tensor"]
    assert torch.equal(out, REFERENCES[name](tensor))
    assert torch.equal(tensor, kept)
    assert not out.requires_grad


@pytest.mark.parametrize("name", FUNCTIONS)
def test_activation_of_whole_numbers(name):
    whole = torch.tensor([[-2, 3]])
    out = execute(Activation, {"tensor": whole}, function=name)["tensor"]
    assert torch.equal(out.float(), REFERENCES[name](whole.float()))


def test_activation_names_its_functions_when_one_is_unknown():
    with pytest.raises(ValueError, match="function is 'swish'; choose one of relu, sigmoid"):
        execute(Activation, {"tensor": torch.zeros(1)}, function="swish")


@pytest.mark.parametrize("shape", [(2, 3, 9, 8), (3, 9, 8)])
@pytest.mark.parametrize(
    ("node", "params", "reference"),
    [
        (MaxPool2d, {}, lambda x: functional.max_pool2d(x, 2, 2)),
        (MaxPool2d, {"kernel_size": 3, "stride": 1}, lambda x: functional.max_pool2d(x, 3, 1)),
        (AvgPool2d, {"kernel_size": 3, "padding": 1}, lambda x: functional.avg_pool2d(x, 3, 2, 1)),
        (AdaptiveAvgPool2d, {}, lambda x: functional.adaptive_avg_pool2d(x, 1)),
        (
            AdaptiveAvgPool2d,
            {"output_height": 4, "output_width": 3},
            lambda x: functional.adaptive_avg_pool2d(x, (4, 3)),
        ),
    ],
)
def test_pooling_is_that_of_torch(node, params, reference, shape):
    image = normal(*shape)
    assert torch.equal(execute(node, {"tensor": image}, **params)["tensor"], reference(image))


def test_averages_of_whole_numbers_are_fractions():
    whole = torch.tensor([[[1, 2], [3, 5]]])
    assert execute(AvgPool2d, {"tensor": whole})["tensor"].item() == 2.75
    assert execute(AdaptiveAvgPool2d, {"tensor": whole})["tensor"].item() == 2.75


def dropped(tensor, p, seed, tmp_path):
    context = RecordingContext(root=tmp_path, seed=seed)
    return execute(Dropout, {"tensor": tensor}, context, p=p)["tensor"], context


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_zeroes_what_torch_does_with_the_seed_of_the_run(p, tmp_path):
    tensor = normal(20, 30)
    out, context = dropped(tensor, p, 7, tmp_path)
    torch.manual_seed(context.derive_seed("mask"))
    assert torch.allclose(out, functional.dropout(tensor, p, training=True))
    assert torch.equal(out, dropped(tensor, p, 7, tmp_path)[0])
    assert not torch.equal(out, dropped(tensor, p, 8, tmp_path)[0])


def test_dropout_of_an_unseeded_run_differs_each_time(tmp_path):
    ones = torch.ones(200)
    first, second = (dropped(ones, 0.5, None, tmp_path)[0] for _ in range(2))
    assert set(first.tolist()) == {0.0, 2.0}
    assert not torch.equal(first, second)


def test_dropout_at_its_bounds(tmp_path):
    tensor = normal(4)
    assert torch.equal(dropped(tensor, 0.0, 1, tmp_path)[0], tensor)
    assert torch.equal(dropped(tensor, 1.0, 1, tmp_path)[0], torch.zeros(4))
    assert torch.equal(dropped(torch.full((2,), torch.inf), 1.0, 1, tmp_path)[0], torch.zeros(2))


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_gradients_pass_through_dropout(p, tmp_path):
    tensor = torch.ones(50, requires_grad=True)
    out = dropped(tensor, p, 7, tmp_path)[0]
    out.sum().backward()
    assert torch.equal(tensor.grad, out.detach())


def test_dropout_is_cached_only_when_nothing_is_random(tmp_path):
    folders = RecordingContext(root=tmp_path).folders
    assert Dropout.fingerprint({"p": 0.5}, folders) != Dropout.fingerprint({"p": 0.5}, folders)
    assert Dropout.fingerprint({"p": 0.0}, folders) is None
    assert Dropout.fingerprint({"p": 1}, folders) is None


def test_known_kernels():
    edge = execute(Conv2dKernel)["tensor"]
    assert edge.tolist() == [[-1, -1, -1], [-1, 8, -1], [-1, -1, -1]]
    assert edge.dtype is torch.float32
    sharpen = execute(Conv2dKernel, preset="Sharpen3x3")["tensor"]
    assert sharpen.tolist() == [[0, -1, 0], [-1, 5, -1], [0, -1, 0]]
    vertical = execute(Conv2dKernel, preset="VerticalEdge3x3")["tensor"]
    assert vertical.tolist() == [[-1, 0, 1]] * 3


def test_a_kernel_of_ones_own_may_be_nested_flat_or_json_text():
    grid = [[1.5, 2], [3, 4]]
    for weights in (grid, [1.5, 2, 3, 4], "[[1.5, 2], [3, 4]]"):
        out = execute(Conv2dKernel, preset="Custom", kernel_size=2, weights=weights)["tensor"]
        assert out.tolist() == grid


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([[1.0, 2.0]], "weights has 2 numbers; kernel_size 2 needs 4"),
        ("[[1, 2", "weights must be a grid of 2 rows"),
        (None, "weights must be a grid of 2 rows of 2 numbers"),
        ([["a", "b"], [1, 2]], "weights must be a grid"),
        ([[1, 2], [3]], "weights must be a grid"),
    ],
)
def test_a_kernel_that_is_no_grid_is_refused(weights, message):
    with pytest.raises(ValueError, match=f"Conv2dKernel: {message}"):
        execute(Conv2dKernel, preset="Custom", kernel_size=2, weights=weights)


@pytest.mark.parametrize("preset", PRESETS)
def test_one_kernel_is_slid_over_every_channel(preset):
    image = normal(2, 3, 8, 9)
    kernel = execute(Conv2dKernel, preset=preset)["tensor"]
    out = execute(Conv2dExplicit, {"tensor": image, "kernel": kernel}, stride=2, padding=0)["tensor"]
    weight = kernel.expand(3, 1, 3, 3)
    assert torch.equal(out, functional.conv2d(image, weight, stride=2, groups=3))
    out = execute(Conv2dExplicit, {"tensor": image, "kernel": kernel[None, None]}, stride=2, padding=0)
    assert torch.equal(out["tensor"], functional.conv2d(image, weight, stride=2, groups=3))


def test_each_channel_may_have_its_own_kernel():
    image, kernels = normal(2, 3, 8, 8), normal(3, 1, 3, 3)
    out = execute(Conv2dExplicit, {"tensor": image, "kernel": kernels})["tensor"]
    assert torch.allclose(out, functional.conv2d(image, kernels, padding=1, groups=3))


def test_a_fractional_kernel_works_on_whole_numbers():
    image = torch.arange(16).reshape(1, 1, 4, 4)
    kernel = torch.full((3, 3), 1 / 9)
    out = execute(Conv2dExplicit, {"tensor": image, "kernel": kernel}, padding=0)["tensor"]
    assert torch.allclose(out, functional.avg_pool2d(image.float(), 3, 1))


@pytest.mark.parametrize(
    ("image", "kernel", "message"),
    [
        (
            torch.zeros(3, 8, 8),
            torch.zeros(3, 3),
            r"tensor needs the shape \(N, C, H, W\).*\(3, 8, 8\).*Unsqueeze",
        ),
        (torch.zeros(1, 3, 8, 8), torch.zeros(3, 2), r"kernel needs the shape \(k, k\).*it got \(3, 2\)"),
        (torch.zeros(1, 3, 8, 8), torch.zeros(2, 1, 3, 3), r"or \(3, 1, k, k\); it got \(2, 1, 3, 3\)"),
        (torch.zeros(1, 3, 8, 8), torch.zeros(3, 3, 3), "kernel needs the shape"),
        (torch.zeros(1, 1, 1, 1), torch.zeros(7, 7), r"tensor \(1, 1, 1, 1\) float32, kernel \(7, 7\)"),
    ],
)
def test_a_kernel_or_image_that_does_not_fit_is_named(image, kernel, message):
    with pytest.raises(ValueError, match=f"Conv2dExplicit: .*{message}"):
        execute(Conv2dExplicit, {"tensor": image, "kernel": kernel})


@pytest.mark.parametrize(
    ("node", "tensor", "params", "message"),
    [
        (MaxPool2d, torch.zeros(4, 4), {}, r"MaxPool2d: tensor needs the shape \(N, C, H, W\)"),
        (MaxPool2d, torch.zeros(1, 4, 4), {"stride": 0}, "stride must be at least 1"),
        (AvgPool2d, torch.zeros(1, 4, 4), {"padding": 9}, r"AvgPool2d: tensor \(1, 4, 4\)"),
        (MaxPool2d, torch.zeros(1, 1, 1), {}, r"MaxPool2d: tensor \(1, 1, 1\)"),
        (AdaptiveAvgPool2d, torch.zeros(1, 4, 4), {"output_width": 0}, "output_width must be at least 1"),
    ],
)
def test_pooling_names_what_does_not_fit(node, tensor, params, message):
    with pytest.raises(ValueError, match=message):
        execute(node, {"tensor": tensor}, **params)
