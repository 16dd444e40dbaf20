"""Tables on a common scale."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port

from ..base import TorchNode


class Normalize(TorchNode):
    type = "Normalize"
    category = "Data"
    description = (
        "zscore: mean 0 and standard deviation 1; minmax: from 0 to 1; unit_norm: length 1. What doesn't vary"
        " is only shifted."
    )
    inputs = (Port(name="tensor", type=DataType.TENSOR, description="A table, or any tensor"),)
    outputs = (
        Port(name="tensor", type=DataType.TENSOR, description="float32, same shape"),
        Port(
            name="stats",
            type=DataType.LIST,
            description="For each column (axis 0) or row (axis 1), its numbers by name",
        ),
    )
    params = (
        Param(
            name="mode",
            kind=ParamKind.SELECT,
            default="zscore",
            options=("zscore", "minmax", "unit_norm"),
            description="The scale",
        ),
        Param(name="axis", kind=ParamKind.INT, default=0, description="0 for each column, 1 for each row"),
    )

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        tensor, axis = self.tensor(inputs, "tensor", context).float(), int(params["axis"])
        if not -tensor.dim() <= axis < tensor.dim():
            raise self.unfit(f"axis {axis} isn't one of the tensor's {tensor.dim()}")
        if not tensor.shape[axis]:
            raise self.unfit("tensor has nothing along the axis to compute statistics from")
        statistics = _statistics(tensor, params["mode"], axis)
        return {"tensor": _scaled(tensor, params["mode"], statistics), "stats": _listed(statistics)}


def _statistics(tensor: Tensor, mode: str, axis: int) -> dict[str, Tensor]:
    match mode:
        case "zscore":
            mean = tensor.mean(dim=axis, keepdim=True)
            return {"mean": mean, "std": tensor.std(dim=axis, keepdim=True, correction=0)}
        case "minmax":
            return {"min": tensor.amin(dim=axis, keepdim=True), "max": tensor.amax(dim=axis, keepdim=True)}
        case _:
            return {"norm": torch.linalg.vector_norm(tensor, dim=axis, keepdim=True)}


def _scaled(tensor: Tensor, mode: str, statistics: Mapping[str, Tensor]) -> Tensor:
    match mode:
        case "zscore":
            return (tensor - statistics["mean"]) / _not_zero(statistics["std"])
        case "minmax":
            return (tensor - statistics["min"]) / _not_zero(statistics["max"] - statistics["min"])
        case _:
            return tensor / _not_zero(statistics["norm"])


def _not_zero(values: Tensor) -> Tensor:
    return torch.where(values == 0, torch.ones_like(values), values)


def _listed(statistics: Mapping[str, Tensor]) -> list[dict[str, float]]:
    columns = {name: values.flatten().tolist() for name, values in statistics.items()}
    return [dict(zip(columns, numbers, strict=True)) for numbers in zip(*columns.values(), strict=True)]
