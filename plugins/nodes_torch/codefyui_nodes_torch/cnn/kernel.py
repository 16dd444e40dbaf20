"""Convolution with a kernel that is wired in, and kernels to wire."""

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port

from ..base import TorchNode, floating, shape_of

PRESETS: Mapping[str, tuple[tuple[float, ...], ...]] = {
    "EdgeDetection3x3": ((-1, -1, -1), (-1, 8, -1), (-1, -1, -1)),
    "Sharpen3x3": ((0, -1, 0), (-1, 5, -1), (0, -1, 0)),
    "VerticalEdge3x3": ((-1, 0, 1), (-1, 0, 1), (-1, 0, 1)),
}


class Conv2dKernel(TorchNode):
    type = "Conv2dKernel"
    category = "CNN"
    description = "A square float32 kernel (k, k) for Conv2dExplicit."
    outputs = (Port(name="tensor", type=DataType.TENSOR),)
    params = (
        Param(
            name="preset",
            kind=ParamKind.SELECT,
            default="EdgeDetection3x3",
            options=(*PRESETS, "Custom"),
            description="A known kernel, or your own numbers",
        ),
        Param(
            name="kernel_size",
            kind=ParamKind.INT,
            default=3,
            minimum=1,
            maximum=15,
            visible_when={"preset": "Custom"},
            description="Side of the kernel",
        ),
        Param(
            name="weights",
            kind=ParamKind.TENSOR_GRID,
            default=[[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]],
            visible_when={"preset": "Custom"},
            description="The numbers, row by row",
        ),
    )

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        preset = params["preset"]
        numbers = (
            PRESETS[preset] if preset in PRESETS else self._custom(params["weights"], params["kernel_size"])
        )
        return {"tensor": torch.tensor(numbers, dtype=torch.float32, device=context.device)}

    def _custom(self, weights: Any, size: int) -> list[list[float]]:
        try:
            grid = json.loads(weights) if isinstance(weights, str) else weights
            flat = torch.as_tensor(grid, dtype=torch.float32).reshape(-1).tolist()
        except (TypeError, ValueError, RuntimeError) as error:
            raise self.unfit(f"weights must be a grid of {size} rows of {size} numbers ({error})") from error
        if len(flat) != size * size:
            raise self.unfit(f"weights has {len(flat)} numbers; kernel_size {size} needs {size * size}")
        return [flat[row * size : (row + 1) * size] for row in range(size)]


class Conv2dExplicit(TorchNode):
    """Depthwise cross-correlation, without bias. A fractional kernel makes whole-number images float32."""

    type = "Conv2dExplicit"
    category = "CNN"
    description = "Slides a kernel that is wired in over every channel of an image."
    inputs = (
        Port(name="tensor", type=DataType.TENSOR, description="(N, C, H, W)"),
        Port(name="kernel", type=DataType.TENSOR, description="(k, k) for all channels, or (C, 1, k, k)"),
    )
    outputs = (Port(name="tensor", type=DataType.TENSOR),)
    params = (
        Param(
            name="stride", kind=ParamKind.INT, default=1, minimum=1, description="How far the kernel moves"
        ),
        Param(
            name="padding", kind=ParamKind.INT, default=1, minimum=0, description="Zeros added at each side"
        ),
    )

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        tensor = self.tensor(inputs, "tensor", context)
        if tensor.dim() != 4:
            raise self.unfit(
                f"tensor needs the shape (N, C, H, W); it got {shape_of(tensor)}. "
                "Add the missing axes with Unsqueeze"
            )
        given = self.tensor(inputs, "kernel", context)
        kernel = self._for_channels(given, tensor.shape[1])
        image = floating(tensor)
        with self.fitting(tensor=tensor, kernel=given):
            output = functional.conv2d(
                image,
                kernel.to(image.dtype),
                stride=params["stride"],
                padding=params["padding"],
                groups=tensor.shape[1],
            )
        return {"tensor": output}

    def _for_channels(self, kernel: torch.Tensor, channels: int) -> torch.Tensor:
        """The kernel as (C, 1, k, k)."""
        full = kernel[None, None] if kernel.dim() == 2 else kernel
        square = full.dim() == 4 and full.shape[1] == 1 and full.shape[2] == full.shape[3]
        if not square or full.shape[0] not in {1, channels}:
            raise self.unfit(
                f"kernel needs the shape (k, k), (1, 1, k, k) or ({channels}, 1, k, k); it got {shape_of(kernel)}"
            )
        return full.expand(channels, -1, -1, -1)
