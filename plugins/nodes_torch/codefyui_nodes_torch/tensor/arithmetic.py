"""Arithmetic of two tensors, or of a tensor and a number. Shapes broadcast as in torch."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port

from ..base import TorchNode, floating

_PAIR = (Port(name="tensor_a", type=DataType.TENSOR), Port(name="tensor_b", type=DataType.TENSOR))
_ONE = (Port(name="tensor", type=DataType.TENSOR),)


class _Pairwise(TorchNode):
    category = "Tensor Operations"
    inputs = _PAIR
    outputs = _ONE

    @abstractmethod
    def combine(self, a: torch.Tensor, b: torch.Tensor, params: Mapping[str, Any]) -> torch.Tensor:
        """The result, from two tensors that may not fit each other."""

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        a, b = self.tensor(inputs, "tensor_a", context), self.tensor(inputs, "tensor_b", context)
        with self.fitting(tensor_a=a, tensor_b=b):
            return {"tensor": self.combine(a, b, params)}


def weighted_sum(a: torch.Tensor, b: torch.Tensor, alpha: float) -> torch.Tensor:
    """``a + alpha * b``. Whole numbers stay whole for a whole ``alpha`` and become float32 for any other."""
    kind = torch.result_type(a, b)
    if kind.is_floating_point or kind.is_complex:
        return torch.add(a, b, alpha=alpha)
    if not float(alpha).is_integer():
        return torch.add(floating(a), floating(b), alpha=alpha)
    if kind is torch.bool and alpha != 1:
        return torch.add(a.to(torch.int64), b, alpha=int(alpha))
    return torch.add(a, b, alpha=int(alpha))


class Add(_Pairwise):
    type = "Add"
    description = "a + alpha · b, broadcast. Whole numbers stay whole when alpha is whole."
    params = (
        Param(
            name="alpha",
            kind=ParamKind.FLOAT,
            default=1.0,
            description="What the second tensor is multiplied by",
        ),
    )

    @override
    def combine(self, a: torch.Tensor, b: torch.Tensor, params: Mapping[str, Any]) -> torch.Tensor:
        return weighted_sum(a, b, params["alpha"])


class Multiply(_Pairwise):
    type = "Multiply"
    description = "a · b, element by element, broadcast."

    @override
    def combine(self, a: torch.Tensor, b: torch.Tensor, params: Mapping[str, Any]) -> torch.Tensor:
        return torch.mul(a, b)


class MatMul(_Pairwise):
    type = "MatMul"
    description = (
        "The matrix product: of vectors, matrices or batches of matrices, as torch.matmul defines it."
    )

    @override
    def combine(self, a: torch.Tensor, b: torch.Tensor, params: Mapping[str, Any]) -> torch.Tensor:
        kind = torch.promote_types(a.dtype, b.dtype)
        return torch.matmul(a.to(kind), b.to(kind))


class ScalarMultiply(TorchNode):
    type = "ScalarMultiply"
    category = "Tensor Operations"
    description = "The tensor times a number. Whole numbers become float32."
    inputs = _ONE
    outputs = _ONE
    params = (Param(name="scalar", kind=ParamKind.FLOAT, default=1.0, description="The factor"),)

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        return {"tensor": self.tensor(inputs, "tensor", context) * float(params["scalar"])}
