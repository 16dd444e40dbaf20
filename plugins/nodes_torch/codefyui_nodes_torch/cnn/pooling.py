"""Pooling: windows of an image become one value."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port

from ..base import TorchNode, floating

_SIZE = Param(name="kernel_size", kind=ParamKind.INT, default=2, description="Side of the window")
_STRIDE = Param(name="stride", kind=ParamKind.INT, default=2, description="How far the window moves")


class _Pooling(TorchNode):
    category = "CNN"
    inputs = (Port(name="tensor", type=DataType.TENSOR, description="(N, C, H, W) or (C, H, W)"),)
    outputs = (Port(name="tensor", type=DataType.TENSOR),)

    @abstractmethod
    def pool(self, image: torch.Tensor, params: Mapping[str, Any]) -> torch.Tensor:
        """The smaller image."""

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        image = self.tensor(inputs, "tensor", context)
        self.check_rank("tensor", image, "N, C, H, W", "C, H, W")
        self.check_positive(params, *(name for name in params if name != "padding"))
        with self.fitting(tensor=image):
            return {"tensor": self.pool(image, params)}


class MaxPool2d(_Pooling):
    type = "MaxPool2d"
    description = "The largest value of each square window."
    params = (_SIZE, _STRIDE)

    @override
    def pool(self, image: torch.Tensor, params: Mapping[str, Any]) -> torch.Tensor:
        return functional.max_pool2d(image, params["kernel_size"], params["stride"])


class AvgPool2d(_Pooling):
    type = "AvgPool2d"
    description = "The mean of each square window; padded zeros count."
    params = (
        _SIZE,
        _STRIDE,
        Param(name="padding", kind=ParamKind.INT, default=0, description="Zeros added at each side"),
    )

    @override
    def pool(self, image: torch.Tensor, params: Mapping[str, Any]) -> torch.Tensor:
        return functional.avg_pool2d(
            floating(image), params["kernel_size"], params["stride"], params["padding"]
        )


class AdaptiveAvgPool2d(_Pooling):
    type = "AdaptiveAvgPool2d"
    description = "Means of as many windows as the output has pixels, whatever the input's size."
    params = (
        Param(name="output_height", kind=ParamKind.INT, default=1, description="Rows of the output"),
        Param(name="output_width", kind=ParamKind.INT, default=1, description="Columns of the output"),
    )

    @override
    def pool(self, image: torch.Tensor, params: Mapping[str, Any]) -> torch.Tensor:
        size = (params["output_height"], params["output_width"])
        return functional.adaptive_avg_pool2d(floating(image), size)
