"""Shapes: reshaped, flattened, joined."""

from collections.abc import Mapping
from typing import Any

import torch
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port

from ..base import TorchNode
from ..integers import integers

_ONE = (Port(name="tensor", type=DataType.TENSOR),)


class Reshape(TorchNode):
    type = "Reshape"
    category = "Utility"
    description = "The same values in another shape; one size may be -1 and follows from the others."
    inputs = _ONE
    outputs = _ONE
    params = (Param(name="shape", kind=ParamKind.STRING, default="-1,784", description="Sizes of the axes"),)

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        tensor = self.tensor(inputs, "tensor", context)
        shape = integers(params["shape"], "Reshape: shape")
        with self.fitting(tensor=tensor):
            return {"tensor": tensor.reshape(shape)}


class Flatten(TorchNode):
    type = "Flatten"
    category = "Utility"
    description = "All axes from one on become a single one."
    inputs = _ONE
    outputs = _ONE
    params = (
        Param(
            name="start_dim", kind=ParamKind.INT, default=1, description="The first axis that is flattened"
        ),
    )

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        tensor = self.tensor(inputs, "tensor", context)
        with self.fitting(tensor=tensor):
            return {"tensor": tensor.flatten(start_dim=params["start_dim"])}


class Concat(TorchNode):
    type = "Concat"
    category = "Utility"
    description = "Two tensors, one after the other on an axis; the other axes must be equal."
    inputs = (Port(name="tensor_a", type=DataType.TENSOR), Port(name="tensor_b", type=DataType.TENSOR))
    outputs = _ONE
    params = (Param(name="dim", kind=ParamKind.INT, default=0, description="The axis that grows"),)

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        a, b = self.tensor(inputs, "tensor_a", context), self.tensor(inputs, "tensor_b", context)
        with self.fitting(tensor_a=a, tensor_b=b):
            return {"tensor": torch.cat((a, b), dim=params["dim"])}
