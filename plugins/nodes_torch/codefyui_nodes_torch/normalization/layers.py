"""Normalization layers, in training mode."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from typing_extensions import override

from codefyui_core.plugin import Param, ParamKind

from ..base import floating, shape_of
from ..integers import integers
from ..steps import Step, step
from ..weights import WeightedNode


class BatchNorm1d(WeightedNode):
    """S. Ioffe, C. Szegedy, Batch Normalization, ICML 2015; eps 1e-5, statistics of the batch."""

    type = "BatchNorm1d"
    category = "Normalization"
    description = (
        "Each feature to mean 0 and variance 1 over the batch, then gamma and beta: (N, C) or (N, C, L)."
    )
    params = (
        Param(name="num_features", kind=ParamKind.INT, default=128, description="Features of the input"),
    )

    @override
    def build(self, params: Mapping[str, Any]) -> nn.Module:
        return nn.BatchNorm1d(params["num_features"])

    @override
    def check(self, tensor: torch.Tensor, params: Mapping[str, Any]) -> torch.Tensor:
        self.check_positive(params, "num_features")
        self.check_rank("tensor", tensor, "N, C", "N, C, L")
        self.check_axis("tensor", tensor, 1, params["num_features"], "num_features")
        if tensor.numel() <= tensor.shape[1]:
            raise self.unfit(
                f"tensor {shape_of(tensor)} has one value a feature, which has no variance; use a larger batch"
            )
        return floating(tensor)


class GroupNorm(WeightedNode):
    """Y. Wu, K. He, Group Normalization, ECCV 2018; eps 1e-5."""

    type = "GroupNorm"
    category = "Normalization"
    description = (
        "Groups of channels of each sample to mean 0 and variance 1, then gamma and beta: (N, C, …)."
    )
    params = (
        Param(
            name="num_groups", kind=ParamKind.INT, default=32, description="Groups; they divide the channels"
        ),
        Param(name="num_channels", kind=ParamKind.INT, default=256, description="Channels of the input"),
    )

    @override
    def build(self, params: Mapping[str, Any]) -> nn.Module:
        return nn.GroupNorm(params["num_groups"], params["num_channels"])

    @override
    def check(self, tensor: torch.Tensor, params: Mapping[str, Any]) -> torch.Tensor:
        self.check_positive(params, "num_groups", "num_channels")
        groups, channels = params["num_groups"], params["num_channels"]
        if channels % groups:
            raise self.unfit(f"num_groups {groups} doesn't divide num_channels {channels}")
        self.check_axis("tensor", tensor, 1, channels, "num_channels")
        return floating(tensor)


class InstanceNorm2d(WeightedNode):
    """D. Ulyanov et al., Instance Normalization, 2016; eps 1e-5, no running statistics."""

    type = "InstanceNorm2d"
    category = "Normalization"
    description = "Each channel of each sample to mean 0 and variance 1: (N, C, H, W)."
    params = (
        Param(name="num_features", kind=ParamKind.INT, default=64, description="Channels of the input"),
        Param(name="affine", kind=ParamKind.BOOL, default=False, description="Learn gamma and beta"),
    )

    @override
    def build(self, params: Mapping[str, Any]) -> nn.Module:
        return nn.InstanceNorm2d(params["num_features"], affine=params["affine"])

    @override
    def check(self, tensor: torch.Tensor, params: Mapping[str, Any]) -> torch.Tensor:
        self.check_positive(params, "num_features")
        self.check_rank("tensor", tensor, "N, C, H, W", "C, H, W")
        self.check_axis("tensor", tensor, -3, params["num_features"], "num_features")
        if tensor.shape[-1] * tensor.shape[-2] <= 1:
            raise self.unfit(f"tensor {shape_of(tensor)} has one pixel a channel, which has no variance")
        return floating(tensor)


class LayerNorm(WeightedNode):
    """J. L. Ba et al., Layer Normalization, 2016; population variance over the trailing axes."""

    type = "LayerNorm"
    category = "Normalization"
    description = "The trailing axes of each sample to mean 0 and variance 1, then gamma and beta."
    params = (
        Param(
            name="normalized_shape",
            kind=ParamKind.STRING,
            default="512",
            description="Sizes of the trailing axes, such as 512 or 64,32",
        ),
        Param(name="eps", kind=ParamKind.FLOAT, default=1e-5, description="Added to the variance"),
    )

    @override
    def build(self, params: Mapping[str, Any]) -> nn.Module:
        return nn.LayerNorm(_trailing(params), eps=params["eps"])

    @override
    def check(self, tensor: torch.Tensor, params: Mapping[str, Any]) -> torch.Tensor:
        shape = _trailing(params)
        if tuple(tensor.shape[-len(shape) :]) != shape:
            raise self.unfit(
                f"tensor must end in the sizes {shape} of normalized_shape; it got {shape_of(tensor)}"
            )
        return floating(tensor)

    @override
    def steps(self, layer: nn.Module, tensor: torch.Tensor, output: torch.Tensor) -> Iterator[Step]:
        assert isinstance(layer, nn.LayerNorm)
        axes = tuple(range(-len(layer.normalized_shape), 0))
        mean = tensor.mean(dim=axes, keepdim=True)
        variance = tensor.var(dim=axes, keepdim=True, correction=0)
        yield step("input", "The input", input=tensor)
        yield step("compute_mean", "Mean over the trailing axes", {"eps": layer.eps}, mean=mean)
        yield step("compute_var", "Population variance over the same axes", var=variance)
        normalized = (tensor - mean) / torch.sqrt(variance + layer.eps)
        yield step("normalize", "(x - mean) / sqrt(var + eps)", normalized=normalized)
        yield step(
            "scale_shift",
            "gamma · normalized + beta: the layer's output",
            gamma=layer.weight,
            beta=layer.bias,
            output=output,
        )


def _trailing(params: Mapping[str, Any]) -> tuple[int, ...]:
    return integers(params["normalized_shape"], "LayerNorm: normalized_shape")
