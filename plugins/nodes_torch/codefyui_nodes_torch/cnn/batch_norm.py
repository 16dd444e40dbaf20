"""Batch normalization of images."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from typing_extensions import override

from codefyui_core.plugin import Param, ParamKind

from ..base import floating, shape_of
from ..steps import Step, step
from ..weights import WeightedNode


class BatchNorm2d(WeightedNode):
    """Statistics of the batch, as in training: mean and population variance over N, H and W; eps 1e-5.

    S. Ioffe, C. Szegedy, Batch Normalization, ICML 2015.
    """

    type = "BatchNorm2d"
    category = "CNN"
    description = (
        "Each channel shifted and scaled to mean 0 and variance 1 over the batch, then gamma and beta."
    )
    params = (
        Param(name="num_features", kind=ParamKind.INT, default=32, description="Channels of the input"),
    )

    @override
    def build(self, params: Mapping[str, Any]) -> nn.Module:
        return nn.BatchNorm2d(params["num_features"])

    @override
    def check(self, tensor: torch.Tensor, params: Mapping[str, Any]) -> torch.Tensor:
        self.check_positive(params, "num_features")
        self.check_rank("tensor", tensor, "N, C, H, W")
        self.check_axis("tensor", tensor, 1, params["num_features"], "num_features")
        if tensor.numel() <= tensor.shape[1]:
            raise self.unfit(
                f"tensor {shape_of(tensor)} has one value a channel, which has no variance; "
                "use a larger batch or image"
            )
        return floating(tensor)

    @override
    def steps(self, layer: nn.Module, tensor: torch.Tensor, output: torch.Tensor) -> Iterator[Step]:
        assert isinstance(layer, nn.BatchNorm2d)
        axes = (0, 2, 3)
        mean = tensor.mean(dim=axes, keepdim=True)
        variance = tensor.var(dim=axes, keepdim=True, correction=0)
        yield step("input", "The input", input=tensor)
        yield step("per_channel_mean", "Mean over batch, height and width", {"eps": layer.eps}, mean=mean)
        yield step("per_channel_var", "Population variance over the same axes", var=variance)
        normalized = (tensor - mean) / torch.sqrt(variance + layer.eps)
        yield step("normalize", "(x - mean) / sqrt(var + eps)", normalized=normalized)
        yield step(
            "scale_shift",
            "gamma · normalized + beta: the layer's output",
            gamma=layer.weight,
            beta=layer.bias,
            output=output,
        )
