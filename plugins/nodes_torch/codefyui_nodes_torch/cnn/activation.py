"""Activation functions, element by element, on a copy."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port

from ..base import TorchNode, floating

PRELU_SLOPE = 0.25
"""Where torch's PReLU begins; here it is fixed."""


def _softmax(tensor: torch.Tensor) -> torch.Tensor:
    return torch.softmax(tensor, dim=-1)


def _prelu(tensor: torch.Tensor) -> torch.Tensor:
    return functional.leaky_relu(tensor, negative_slope=PRELU_SLOPE)


FUNCTIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": functional.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "leaky_relu": functional.leaky_relu,
    "elu": functional.elu,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "mish": functional.mish,
    "selu": functional.selu,
    "softmax": _softmax,
    "hardswish": functional.hardswish,
    "prelu": _prelu,
}


class Activation(TorchNode):
    """torch's functions with their default constants: slope 0.01 for leaky_relu, alpha 1 for elu, the exact
    (erf) form of gelu, the last axis for softmax. ``prelu`` has the fixed slope 0.25.
    """

    type = "Activation"
    category = "CNN"
    description = "A nonlinear function of every element."
    inputs = (Port(name="tensor", type=DataType.TENSOR),)
    outputs = (Port(name="tensor", type=DataType.TENSOR),)
    params = (
        Param(
            name="function",
            kind=ParamKind.SELECT,
            default="relu",
            options=tuple(FUNCTIONS),
            description="Which function",
        ),
    )

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        name = params["function"]
        function = FUNCTIONS.get(name)
        if function is None:
            raise self.unfit(f"function is {name!r}; choose one of {', '.join(FUNCTIONS)}")
        tensor = self.tensor(inputs, "tensor", context)
        whole_stays = name == "relu" and tensor.dtype is not torch.bool
        return {"tensor": function(tensor if whole_stays else floating(tensor))}
