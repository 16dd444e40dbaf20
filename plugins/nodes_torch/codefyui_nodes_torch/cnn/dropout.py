"""Dropout as in training."""

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import JsonValue
from typing_extensions import override

from codefyui_core.plugin import DataType, Folders, NodeContext, Param, ParamKind, Port

from ..base import TorchNode, floating
from ..fresh import never_again


class Dropout(TorchNode):
    """Always in training mode. What is zeroed follows from the run's seed when it has one.

    N. Srivastava et al., Dropout: A Simple Way to Prevent Neural Networks from Overfitting, JMLR 15, 2014.
    """

    type = "Dropout"
    category = "CNN"
    description = "Zeroes elements with probability p and multiplies the others by 1 / (1 - p)."
    inputs = (Port(name="tensor", type=DataType.TENSOR),)
    outputs = (Port(name="tensor", type=DataType.TENSOR),)
    params = (
        Param(
            name="p",
            kind=ParamKind.FLOAT,
            default=0.5,
            minimum=0.0,
            maximum=1.0,
            description="Probability that an element is zeroed",
        ),
    )

    @classmethod
    @override
    def fingerprint(cls, params: Mapping[str, JsonValue], folders: Folders) -> str | None:
        return None if params.get("p") in {0, 1} else never_again()

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        tensor, p = floating(self.tensor(inputs, "tensor", context)), float(params["p"])
        if p == 0:
            return {"tensor": tensor}
        if p == 1:
            return {"tensor": tensor.masked_fill(torch.ones_like(tensor, dtype=torch.bool), 0)}
        kept = torch.empty_like(tensor).bernoulli_(1 - p, generator=context.generator("mask"))
        return {"tensor": tensor * (kept / (1 - p))}
