"""The module that a drawing becomes."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..base import UnfitError
from .drawing import Source, parse_drawing
from .layers import build_layer


def member_name(id_: str) -> str:
    """A layer's id as the name of a submodule: itself where torch allows that, else escaped so that no two
    ids meet. Keys of the state dict are ``layers.<name>.<parameter>``.
    """
    name = id_.replace("%", "%25").replace(".", "%2E")
    return f"{name}%" if not name or hasattr(nn.Module(), name) else name


class LayerGraph(nn.Module):
    """A graph of layers with named inputs and outputs.

    Takes its inputs by position or by name, and answers the tensor of its output, or a dict by name when it
    has several.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        drawing = parse_drawing(text)
        self.text = text
        self.input_names = drawing.inputs
        self.output_names = tuple(drawing.outputs)
        self._order = drawing.layers
        self._ends = dict(drawing.outputs)
        self._names = {layer.id: member_name(layer.id) for layer in drawing.layers}
        self.layers = nn.Module()
        for layer in drawing.layers:
            self.layers.add_module(self._names[layer.id], build_layer(layer))

    def forward(self, *args: Tensor, **kwargs: Tensor) -> Any:
        given = self._given(args, kwargs)
        values: dict[str, Tensor] = {}
        for layer in self._order:
            parts = [_value(source, given, values) for source in layer.sources]
            module = self.layers.get_submodule(self._names[layer.id])
            try:
                values[layer.id] = module(*parts)
            except (RuntimeError, ValueError, IndexError) as problem:
                if _is_device_fault(problem):
                    raise
                raise _explained(problem, layer.id, layer.type, parts) from problem
        ends = {name: _value(source, given, values) for name, source in self._ends.items()}
        return ends if len(ends) > 1 else next(iter(ends.values()))

    def _given(self, args: tuple[Tensor, ...], kwargs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        if args and not kwargs and len(args) == len(self.input_names):
            return dict(zip(self.input_names, args, strict=True))
        if not args and set(kwargs) == set(self.input_names):
            return kwargs
        got = [f"{len(args)} by position"] * bool(args) + sorted(kwargs)
        raise UnfitError(
            f"This model's inputs are {', '.join(self.input_names)}; it was given {', '.join(got) or 'nothing'}."
        )


def _value(source: Source, given: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> Tensor:
    return values[source.layer] if source.port is None else given[source.port]


def _is_device_fault(problem: Exception) -> bool:
    # Out of memory and device faults keep their class: the run's cause is told from it.
    return isinstance(problem, torch.OutOfMemoryError) or "CUDA" in str(problem)


def _explained(problem: Exception, id_: str, type_: str, parts: list[Tensor]) -> UnfitError:
    shapes = " and ".join(str(tuple(part.shape)) for part in parts)
    return UnfitError(f"{type_} {id_} got {shapes}: {problem}")
