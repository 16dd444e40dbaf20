"""Tensors made from nothing."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from pydantic import JsonValue
from typing_extensions import override

from codefyui_core.plugin import DataType, Folders, NodeContext, Param, ParamKind, Port

from ..base import TorchNode
from ..fresh import never_again
from ..integers import integers

_RANDOM = ("randn", "rand")


class TensorCreate(TorchNode):
    """A float32 tensor on the run's device. ``arange`` counts 0, 1, 2… through the whole shape, row by row."""

    type = "TensorCreate"
    category = "Tensor Operations"
    description = "A new float32 tensor: constant, counting or random (from the run's seed when it has one)."
    outputs = (Port(name="tensor", type=DataType.TENSOR),)
    params = (
        Param(
            name="shape",
            kind=ParamKind.STRING,
            default="1,3,224,224",
            description="Sizes of the axes, such as 2,3",
        ),
        Param(
            name="fill",
            kind=ParamKind.SELECT,
            default="zeros",
            options=("zeros", "ones", "randn", "rand", "full", "arange"),
            description="randn: normal; rand: uniform in [0, 1); full: the value below; arange: 0, 1, 2…",
        ),
        Param(name="value", kind=ParamKind.FLOAT, default=0.0, description="What full fills in"),
        Param(name="requires_grad", kind=ParamKind.BOOL, default=False, description="Let gradients reach it"),
    )

    @classmethod
    @override
    def fingerprint(cls, params: Mapping[str, JsonValue], folders: Folders) -> str | None:
        return never_again() if params.get("fill") in _RANDOM else None

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        shape = integers(params["shape"], "TensorCreate: shape")
        if min(shape) < 0:
            raise self.unfit(f"shape can't have a negative size; it is {params['shape']!r}")
        tensor = _filled(shape, params["fill"], float(params["value"]), context)
        return {"tensor": tensor.requires_grad_(params["requires_grad"])}


def _filled(shape: tuple[int, ...], fill: str, value: float, context: NodeContext) -> torch.Tensor:
    if fill in _RANDOM:
        draw = torch.randn if fill == "randn" else torch.rand
        return draw(shape, generator=context.generator("fill"), dtype=torch.float32, device=context.device)
    if fill == "arange":
        return torch.arange(math.prod(shape), dtype=torch.float32, device=context.device).reshape(shape)
    constant = {"zeros": 0.0, "ones": 1.0}.get(fill, value)
    return torch.full(shape, constant, dtype=torch.float32, device=context.device)
