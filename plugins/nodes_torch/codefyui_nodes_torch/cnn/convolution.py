"""Convolution layers with weights."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from typing_extensions import override

from codefyui_core.plugin import Param, ParamKind

from ..base import floating
from ..steps import Step, step
from ..weights import WeightedNode


def _channels(into: int, out: int) -> tuple[Param, ...]:
    return (
        Param(name="in_channels", kind=ParamKind.INT, default=into, description="Channels of the input"),
        Param(name="out_channels", kind=ParamKind.INT, default=out, description="Channels of the output"),
    )


def _window(kernel_size: int, stride: int, padding: int) -> tuple[Param, ...]:
    return (
        Param(name="kernel_size", kind=ParamKind.INT, default=kernel_size, description="Side of the window"),
        Param(name="stride", kind=ParamKind.INT, default=stride, description="How far the window moves"),
        Param(name="padding", kind=ParamKind.INT, default=padding, description="Zeros added at each side"),
    )


class _Convolution(WeightedNode):
    category = "CNN"
    forms: tuple[str, str]
    """The shapes that fit, with and without a batch axis."""

    @override
    def check(self, tensor: torch.Tensor, params: Mapping[str, Any]) -> torch.Tensor:
        self.check_rank("tensor", tensor, *self.forms)
        spatial = self.forms[1].count(",")
        self.check_axis("tensor", tensor, -spatial - 1, params["in_channels"], "in_channels")
        return floating(tensor)

    def sizes(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The declared params, as the layer's keyword arguments."""
        self.check_positive(params, "in_channels", "out_channels", "kernel_size", "stride")
        return {param.name: params[param.name] for param in self.params}


class Conv1d(_Convolution):
    type = "Conv1d"
    description = "Cross-correlation along one axis, with bias: (N, C, L) to (N, C', L')."
    params = (*_channels(1, 32), *_window(3, 1, 1))
    forms = ("N, C, L", "C, L")

    @override
    def build(self, params: Mapping[str, Any]) -> nn.Module:
        return nn.Conv1d(**self.sizes(params))


class Conv2d(_Convolution):
    type = "Conv2d"
    description = "Cross-correlation with a square window, with bias: (N, C, H, W) to (N, C', H', W')."
    params = (*_channels(1, 32), *_window(3, 1, 1))
    forms = ("N, C, H, W", "C, H, W")

    @override
    def build(self, params: Mapping[str, Any]) -> nn.Module:
        return nn.Conv2d(**self.sizes(params))

    @override
    def steps(self, layer: nn.Module, tensor: torch.Tensor, output: torch.Tensor) -> Iterator[Step]:
        weights: dict[str, Any] = dict(layer.named_parameters())
        yield step("input_tensor", "The input", input=tensor)
        yield step("kernel_weights", "One kernel for each output channel, and its bias", **weights)
        yield step("convolved_output", "Each kernel slid over the input, plus its bias", output=output)


class ConvTranspose2d(_Convolution):
    type = "ConvTranspose2d"
    description = "The transpose of a convolution: with its defaults it doubles height and width."
    params = (
        *_channels(64, 32),
        *_window(2, 2, 0),
        Param(
            name="output_padding",
            kind=ParamKind.INT,
            default=0,
            description="Size added to one side of the output; less than the stride",
        ),
    )
    forms = ("N, C, H, W", "C, H, W")

    @override
    def build(self, params: Mapping[str, Any]) -> nn.Module:
        return nn.ConvTranspose2d(**self.sizes(params))
