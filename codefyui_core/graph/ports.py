"""The ports of a node with its params, and which types a wire may join."""

from collections.abc import Mapping

from pydantic import JsonValue

from ..plugin.node import DataType, NodeDefinition, Port, Repeat


def ports(
    definition: NodeDefinition, params: Mapping[str, JsonValue]
) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    """Inputs and outputs, those that repeat expanded by ``params`` or the defaults of the definition."""
    return _expand(definition.inputs, definition, params), _expand(definition.outputs, definition, params)


def repeat_count(repeat: Repeat, definition: NodeDefinition, params: Mapping[str, JsonValue]) -> int:
    """How many ports there are: the param, clamped; its default when it is no number."""
    defaults = (param.default for param in definition.params if param.name == repeat.param)
    for value in (params.get(repeat.param), next(defaults, None)):
        if isinstance(value, int | float) and not isinstance(value, bool):
            return int(min(max(value, repeat.minimum), repeat.maximum))
    return repeat.minimum


def repeated(port: Port, repeat: Repeat, count: int) -> tuple[Port, ...]:
    """The ports that one pattern stands for."""
    return tuple(
        port.model_copy(update={"name": port.name.replace("{n}", str(n)), "repeat": None})
        for n in range(repeat.start, repeat.start + count)
    )


def joins(source: str, target: str) -> bool:
    """Whether a wire may lead from an output of one type to an input of the other: equal types, ANY with
    all but TRIGGER, and an image where a tensor is wanted.
    """
    if source == target:
        return True
    if DataType.TRIGGER in (source, target):
        return False
    if DataType.ANY in (source, target):
        return True
    return (source, target) == (DataType.IMAGE, DataType.TENSOR)


def _expand(
    declared: tuple[Port, ...], definition: NodeDefinition, params: Mapping[str, JsonValue]
) -> tuple[Port, ...]:
    if not any(port.repeat for port in declared):
        return declared
    found: list[Port] = []
    for port in declared:
        if port.repeat is None:
            found.append(port)
        else:
            found.extend(repeated(port, port.repeat, repeat_count(port.repeat, definition, params)))
    return tuple(found)
