"""A tensor that is typed in, or filled by a rule."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port

from ..base import TorchNode
from ..integers import integers

_DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "int64": torch.int64,
    "int32": torch.int32,
    "bool": torch.bool,
}
_RANDOM_BELOW = 10


class TensorInput(TorchNode):
    type = "TensorInput"
    category = "Data"
    description = "A tensor of typed values, or of zeros, ones, a count or random numbers."
    outputs = (Port(name="tensor", type=DataType.TENSOR, description="On the run's device"),)
    params = (
        Param(name="shape", kind=ParamKind.STRING, default="1,4,4", description="Sizes, separated by commas"),
        Param(
            name="dtype", kind=ParamKind.SELECT, default="float32", options=tuple(_DTYPES), description="Type"
        ),
        Param(
            name="value_mode",
            kind=ParamKind.SELECT,
            default="random",
            options=("explicit", "random", "zeros", "ones", "arange"),
            description="random: normal for floats, 0 to 9 for whole numbers, even odds for bools",
        ),
        Param(
            name="values",
            kind=ParamKind.TENSOR_GRID,
            default=None,
            description="The numbers, nested or flat",
            visible_when={"value_mode": "explicit"},
        ),
        Param(
            name="seed",
            kind=ParamKind.INT,
            default=0,
            description="Of the random numbers",
            visible_when={"value_mode": "random"},
        ),
    )

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        shape, dtype = integers(params["shape"], "TensorInput: shape"), _DTYPES[params["dtype"]]
        if min(shape) < 0:
            raise self.unfit(f"shape can't have negative sizes; it is {params['shape']!r}")
        return {"tensor": self._filled(shape, dtype, params).to(context.device)}

    def _filled(self, shape: tuple[int, ...], dtype: torch.dtype, params: Mapping[str, Any]) -> Tensor:
        match params["value_mode"]:
            case "explicit":
                return self._explicit(shape, dtype, params["values"])
            case "random":
                return _random(shape, dtype, int(params["seed"]))
            case "zeros":
                return torch.zeros(shape, dtype=dtype)
            case "ones":
                return torch.ones(shape, dtype=dtype)
            case _:
                return torch.arange(math.prod(shape)).reshape(shape).to(dtype)

    def _explicit(self, shape: tuple[int, ...], dtype: torch.dtype, values: Any) -> Tensor:
        if values is None:
            raise self.unfit("values is empty; type numbers in, or choose another value_mode")
        numbers = _flat(values)
        if len(numbers) != math.prod(shape):
            raise self.unfit(
                f"shape {shape} holds {math.prod(shape)} numbers and values has {len(numbers)}; change one"
            )
        wide = torch.float64 if dtype.is_floating_point else None
        try:
            return torch.tensor(numbers, dtype=wide).to(dtype).reshape(shape)
        except (TypeError, ValueError, RuntimeError) as problem:
            raise self.unfit(f"values needs numbers: {problem}") from problem


def _flat(values: Any) -> list[Any]:
    if isinstance(values, list | tuple):
        return [number for item in values for number in _flat(item)]
    return [values]


def _random(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    """Drawn on the CPU, so that every device gets the same numbers."""
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=dtype)
    below = 2 if dtype is torch.bool else _RANDOM_BELOW
    return torch.randint(0, below, shape, generator=generator).to(dtype)
