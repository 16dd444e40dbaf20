"""Columns or rows of a tensor, by number or by name."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port

from ..base import TorchNode


def _params(what: str) -> tuple[Param, ...]:
    return (
        Param(
            name="indices",
            kind=ParamKind.STRING,
            default="0",
            description=f"Numbers of the {what} from 0, separated by commas; any order, repeats are fine",
        ),
        Param(
            name="names",
            kind=ParamKind.STRING,
            default="",
            description=f"Names of the {what}, separated by commas; they win over indices",
        ),
    )


class _Selector(TorchNode):
    """Names are looked up in the texts at ``names_port``; the first of equal ones is taken."""

    names_port: ClassVar[str]
    axis: ClassVar[int]

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        tensor = self.tensor(inputs, "tensor", context)
        if not tensor.dim():
            raise self.unfit("tensor needs at least one axis; it got a single number")
        names = [name.strip() for name in params["names"].split(",") if name.strip()]
        if names:
            places = self._places(names, inputs.get(self.names_port))
        else:
            places = self._numbers(params["indices"])
        size = tensor.shape[self.axis]
        outside = [place for place in places if not 0 <= place < size]
        if outside:
            raise self.unfit(f"there is no {', '.join(map(str, outside))}: it counts from 0 to {size - 1}")
        chosen = torch.tensor(places, dtype=torch.int64, device=tensor.device)
        return {"tensor": tensor.index_select(self.axis, chosen)}

    def _numbers(self, text: str) -> list[int]:
        try:
            return [int(item) for item in text.split(",") if item.strip()]
        except ValueError as problem:
            raise self.unfit(f"indices needs whole numbers separated by commas; it is {text!r}") from problem

    def _places(self, names: Sequence[str], known: Any) -> list[int]:
        if not known:
            raise self.unfit(f"names needs {self.names_port} wired, to look the names up in")
        texts = [str(name) for name in known]
        missing = [name for name in names if name not in texts]
        if missing:
            raise self.unfit(f"{self.names_port} has no {', '.join(map(repr, missing))}")
        return [texts.index(name) for name in names]


class ColumnSelector(_Selector):
    type = "ColumnSelector"
    category = "Data"
    description = "Picks columns, which lie on the last axis."
    inputs = (
        Port(name="tensor", type=DataType.TENSOR, description="(…, columns)"),
        Port(name="columns", type=DataType.LIST, optional=True, description="Names of the columns"),
    )
    outputs = (Port(name="tensor", type=DataType.TENSOR, description="(…, picked columns)"),)
    params = _params("columns")
    names_port = "columns"
    axis = -1


class RowSelector(_Selector):
    type = "RowSelector"
    category = "Data"
    description = "Picks rows, which lie on the first axis; a label that several rows have picks the first."
    inputs = (
        Port(name="tensor", type=DataType.TENSOR, description="(rows, …)"),
        Port(name="labels", type=DataType.LIST, optional=True, description="Labels of the rows"),
    )
    outputs = (Port(name="tensor", type=DataType.TENSOR, description="(picked rows, …)"),)
    params = _params("rows")
    names_port = "labels"
    axis = 0
