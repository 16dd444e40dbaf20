"""Map: runs an installed preset once for each item of a list."""

from collections.abc import Mapping, Sequence
from typing import Any

from codefyui_core.plugin import CodefyError, DataType, Node, NodeContext, Param, ParamKind, Port

FIRST_INPUT = ""
"""The name under which ``run_preset`` takes a value for the first exposed input, whatever it is called."""


class Map(Node):
    type = "Map"
    category = "Data Flow"
    description = (
        "Runs a preset once for each item, in order: the item goes to the preset's first exposed input, "
        "and its first exposed output is collected. Equal items give equal results in a seeded run."
    )
    inputs = (
        Port(name="items", type=DataType.LIST, description="A list, or a tensor whose rows are the items"),
    )
    outputs = (
        Port(name="results", type=DataType.LIST, description="One result for each item, in the same order"),
        Port(name="count", type=DataType.SCALAR, description="How many results there are"),
    )
    params = (
        Param(
            name="subgraph",
            kind=ParamKind.STRING,
            default="",
            preset=True,
            description="Name of an installed preset",
        ),
    )

    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        preset, items = params["subgraph"], _items(inputs["items"])
        if not preset:
            raise CodefyError("Map: no preset is chosen; name an installed preset", code="preset.not_found")
        results: list[Any] = []
        for index, item in enumerate(items):
            if context.should_stop():
                return {"results": results, "count": float(len(results)), "__interrupted__": True}
            results.append(_first(context.run_preset(preset, {FIRST_INPUT: item}, context.node_id), index))
            context.progress({"item": index + 1, "items": len(items)})
        return {"results": results, "count": float(len(results))}


def _items(value: Any) -> Sequence[Any]:
    """Anything that has a length and is read by index; a text or a mapping is one value, not many."""
    indexable = hasattr(value, "__len__") and hasattr(value, "__getitem__")
    if not indexable or isinstance(value, str | bytes | Mapping) or _has_no_axis(value):
        raise CodefyError(
            f"Map: items is {type(value).__name__}, not a list; wire a list or a tensor with rows"
        )
    return [value[index] for index in range(len(value))]


def _has_no_axis(value: Any) -> bool:
    """A tensor or array of one number has ``__len__``, which then raises."""
    return getattr(value, "ndim", None) == 0


def _first(outputs: Mapping[str, Any], index: int) -> Any:
    result = next(iter(outputs.values()), None)
    if result is None:
        raise CodefyError(f"Map: the preset gave nothing for item {index}; wire its first exposed output")
    return result
