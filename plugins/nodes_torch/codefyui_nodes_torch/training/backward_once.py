"""The mark for a backward pass: the engine backpropagates from the tensor that goes through here."""

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from codefyui_core.plugin import DataType, Node, NodeContext, Port


class BackwardOnce(Node):
    type = "BackwardOnce"
    category = "Training"
    description = "Passes a tensor on; in a backward run, gradients start from its sum."
    inputs = (Port(name="tensor", type=DataType.TENSOR, description="Where gradients start"),)
    outputs = (Port(name="tensor", type=DataType.TENSOR, description="The same tensor"),)
    cacheable = False

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        return {"tensor": inputs["tensor"]}
