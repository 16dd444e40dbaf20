"""Reductions over axes, and softmax."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port

from ..base import TorchNode, floating
from ..integers import integers
from ..steps import Step, step, traced

_ONE = (Port(name="tensor", type=DataType.TENSOR),)
_KEEPDIM = Param(
    name="keepdim", kind=ParamKind.BOOL, default=False, description="Keep the reduced axes, with size 1"
)


class Mean(TorchNode):
    type = "Mean"
    category = "Tensor Operations"
    description = "The mean over one or more axes. Whole numbers become float32."
    inputs = _ONE
    outputs = _ONE
    params = (
        Param(name="dim", kind=ParamKind.STRING, default="-1", description="The axes, such as -1 or 2,3"),
        _KEEPDIM,
    )

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        tensor = floating(self.tensor(inputs, "tensor", context))
        dims = integers(params["dim"], "Mean: dim")
        with self.fitting(tensor=tensor):
            return {"tensor": tensor.mean(dim=dims, keepdim=params["keepdim"])}


class Argmax(TorchNode):
    type = "Argmax"
    category = "Tensor Operations"
    description = "Where the maximum along an axis lies, as int64."
    inputs = _ONE
    outputs = _ONE
    params = (Param(name="dim", kind=ParamKind.INT, default=-1, description="The axis"), _KEEPDIM)

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        tensor = self.tensor(inputs, "tensor", context)
        if tensor.dtype is torch.bool:
            tensor = tensor.to(torch.uint8)
        with self.fitting(tensor=tensor):
            return {"tensor": tensor.argmax(dim=params["dim"], keepdim=params["keepdim"])}


class Softmax(TorchNode):
    type = "Softmax"
    category = "Tensor Operations"
    description = "exp(x) divided by its sum along an axis. Whole numbers become float32."
    inputs = _ONE
    outputs = _ONE
    params = (Param(name="dim", kind=ParamKind.INT, default=-1, description="The axis that sums to 1"),)

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        logits, dim = floating(self.tensor(inputs, "tensor", context)), params["dim"]
        with self.fitting(tensor=logits):
            output = torch.softmax(logits, dim=dim)
        return traced({"tensor": output}, context, lambda: _softmax_steps(logits, dim, output))


def _softmax_steps(logits: torch.Tensor, dim: int, output: torch.Tensor) -> Iterator[Step]:
    yield step("logits", "The input", logits=logits)
    highest = logits.amax(dim=dim, keepdim=True)
    shifted = logits - highest
    yield step(
        "max_subtract", "Subtract the maximum, so that exp can't overflow", max=highest, shifted=shifted
    )
    powers = shifted.exp()
    yield step("exp", "Exponentiate", exp=powers)
    yield step("partition", "Sum along the axis", sum=powers.sum(dim=dim, keepdim=True))
    yield step("divide", "Divide by the sum", output=output)
