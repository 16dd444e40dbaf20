"""A list becomes one value."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port

from ..base import TorchNode, floating, shape_of

_ELEMENTWISE: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda stacked: stacked.sum(dim=0),
    "mean": lambda stacked: floating(stacked).mean(dim=0),
    "min": lambda stacked: stacked.amin(dim=0),
    "max": lambda stacked: stacked.amax(dim=0),
}
_JOINS: Mapping[str, Callable[[Sequence[torch.Tensor], int], torch.Tensor]] = {
    "concat": lambda tensors, dim: torch.cat(
        [tensor if tensor.dim() else tensor[None] for tensor in tensors], dim=dim
    ),
    "stack": lambda tensors, dim: torch.stack(tuple(tensors), dim=dim),
}


class Reduce(TorchNode):
    """Numbers and bools count as float32 scalars. ``first`` and ``last`` give the item as it is."""

    type = "Reduce"
    category = "Data Flow"
    description = "Combines the items of a list, element by element, or joins them on an axis."
    inputs = (Port(name="items", type=DataType.LIST, description="Tensors of one shape, or numbers"),)
    outputs = (Port(name="result", type=DataType.ANY), Port(name="count", type=DataType.SCALAR))
    params = (
        Param(
            name="operation",
            kind=ParamKind.SELECT,
            default="mean",
            options=("sum", "mean", "min", "max", "concat", "stack", "first", "last"),
            description="How the items are combined",
        ),
        Param(name="dim", kind=ParamKind.INT, default=0, description="The axis of concat and stack"),
    )

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        items = inputs.get("items")
        if not isinstance(items, list | tuple) or not items:
            raise self.unfit(f"items needs a list with at least one item; it got {_what(items)}")
        return {"result": self._combined(items, params, context), "count": float(len(items))}

    def _combined(self, items: Sequence[Any], params: Mapping[str, Any], context: NodeContext) -> Any:
        operation = params["operation"]
        if operation in {"first", "last"}:
            return items[0 if operation == "first" else -1]
        tensors = [self._tensor(item, index, context) for index, item in enumerate(items)]
        with self.fitting(**_telling(tensors)):
            if operation in _JOINS:
                return _JOINS[operation](tensors, params["dim"])
            return _ELEMENTWISE[operation](torch.stack(tensors))

    def _tensor(self, item: object, index: int, context: NodeContext) -> torch.Tensor:
        if isinstance(item, torch.Tensor):
            return item
        if not isinstance(item, int | float):
            raise self.unfit(f"items[{index}] must be a tensor or a number; it is {shape_of(item)}")
        return torch.tensor(float(item), dtype=torch.float32, device=context.device)


def _what(items: object) -> str:
    return "an empty one" if isinstance(items, list | tuple) else shape_of(items)


def _telling(tensors: Sequence[torch.Tensor]) -> Mapping[str, torch.Tensor]:
    """The items that a message needs: the first, and the first that differs from it in shape."""
    other = next((n for n, tensor in enumerate(tensors) if tensor.shape != tensors[0].shape), 0)
    return {f"items[{n}]": tensors[n] for n in sorted({0, other})}
