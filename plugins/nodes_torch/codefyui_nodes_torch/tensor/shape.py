"""Axes: permuted, added, removed, stacked and split. Values are never touched."""

from collections.abc import Mapping
from typing import Any

import torch
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port, Repeat

from ..base import TorchNode, shape_of
from ..integers import integers

_ONE = (Port(name="tensor", type=DataType.TENSOR),)


class Permute(TorchNode):
    type = "Permute"
    category = "Tensor Operations"
    description = "The same values with the axes in another order."
    inputs = _ONE
    outputs = _ONE
    params = (
        Param(
            name="dims",
            kind=ParamKind.STRING,
            default="0,2,1",
            description="Every axis once, in the new order",
        ),
    )

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        tensor = self.tensor(inputs, "tensor", context)
        dims = integers(params["dims"], "Permute: dims")
        rank = tensor.dim()
        if sorted(dim + rank if dim < 0 else dim for dim in dims) != list(range(rank)):
            raise self.unfit(
                f"dims must name each of the {rank} axes of tensor {shape_of(tensor)} once; it is {params['dims']!r}"
            )
        return {"tensor": tensor.permute(dims)}


class Squeeze(TorchNode):
    """``torch.squeeze(tensor, dim)``.

    A negative ``dim`` counts from the end, so the default removes the last axis if its size is 1, and never
    another one.
    """

    type = "Squeeze"
    category = "Tensor Operations"
    description = "Removes one axis of size 1. An axis of another size stays; -1 is the last axis."
    inputs = _ONE
    outputs = _ONE
    params = (
        Param(
            name="dim",
            kind=ParamKind.INT,
            default=-1,
            description="The axis; negative ones count from the end",
        ),
    )

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        tensor = self.tensor(inputs, "tensor", context)
        with self.fitting(tensor=tensor):
            return {"tensor": tensor.squeeze(params["dim"])}


class Unsqueeze(TorchNode):
    type = "Unsqueeze"
    category = "Tensor Operations"
    description = "Adds an axis of size 1."
    inputs = _ONE
    outputs = _ONE
    params = (Param(name="dim", kind=ParamKind.INT, default=0, description="Where the new axis stands"),)

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        tensor = self.tensor(inputs, "tensor", context)
        with self.fitting(tensor=tensor):
            return {"tensor": tensor.unsqueeze(params["dim"])}


class Stack(TorchNode):
    type = "Stack"
    category = "Tensor Operations"
    description = "Two tensors of one shape, side by side on a new axis."
    inputs = (Port(name="tensor_a", type=DataType.TENSOR), Port(name="tensor_b", type=DataType.TENSOR))
    outputs = _ONE
    params = (Param(name="dim", kind=ParamKind.INT, default=0, description="Where the new axis stands"),)

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        a, b = self.tensor(inputs, "tensor_a", context), self.tensor(inputs, "tensor_b", context)
        with self.fitting(tensor_a=a, tensor_b=b):
            return {"tensor": torch.stack((a, b), dim=params["dim"])}


class Split(TorchNode):
    """``torch.chunk``: pieces of ⌈n / chunks⌉, the last one smaller.

    With few rows torch makes fewer pieces than asked for (5 rows in 4 give 3), which would leave an output
    without a value; that is refused.
    """

    type = "Split"
    category = "Tensor Operations"
    description = "Cuts an axis into pieces of equal size; the last one may be smaller."
    inputs = _ONE
    outputs = (
        Port(name="chunk_{n}", type=DataType.TENSOR, repeat=Repeat(param="chunks", minimum=1, maximum=32)),
    )
    params = (
        Param(
            name="chunks", kind=ParamKind.INT, default=2, minimum=1, maximum=32, description="How many pieces"
        ),
        Param(name="dim", kind=ParamKind.INT, default=0, description="The axis to cut"),
    )

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        tensor, chunks, dim = self.tensor(inputs, "tensor", context), params["chunks"], params["dim"]
        with self.fitting(tensor=tensor):
            pieces = torch.chunk(tensor, chunks, dim=dim)
        if len(pieces) != chunks:
            raise self.unfit(
                f"tensor {shape_of(tensor)} makes {len(pieces)} pieces on axis {dim}, not {chunks}; "
                f"set chunks to {len(pieces)}, or split another axis"
            )
        return {f"chunk_{n}": piece for n, piece in enumerate(pieces)}
