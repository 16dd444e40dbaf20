"""Values of params: whether they fit their declaration, and the form in which a node gets them."""

import math
from collections.abc import Mapping

from pydantic import JsonValue

from ..plugin.node import NodeDefinition, Param, ParamKind
from ..plugin.values import JsonObject
from .issues import Issue, IssueCode

_NUMBERS = frozenset({ParamKind.INT, ParamKind.FLOAT})


def complete(definition: NodeDefinition, given: Mapping[str, JsonValue]) -> JsonObject:
    """Every declared param: what is given, in the type of its kind, else the default. Names that aren't
    declared are left out.
    """
    return {param.name: _value(param, given.get(param.name)) for param in definition.params}


def check_params(node_id: str, definition: NodeDefinition, given: Mapping[str, JsonValue]) -> list[Issue]:
    """One issue for each value that doesn't fit. A null is like a param that isn't given."""
    found = []
    for param in definition.params:
        value = given.get(param.name)
        if value is not None and (issue := _check(node_id, definition, param, value)) is not None:
            found.append(issue)
    return found


def _value(param: Param, given: JsonValue) -> JsonValue:
    value = param.default if given is None else given
    if isinstance(value, bool):
        return value
    if param.kind is ParamKind.INT and isinstance(value, float) and value.is_integer():
        return int(value)
    if param.kind is ParamKind.FLOAT and isinstance(value, int) and _is_float(value):
        return float(value)
    return value


def _check(node_id: str, definition: NodeDefinition, param: Param, value: JsonValue) -> Issue | None:
    if param.kind in _NUMBERS:
        code, wanted = _check_number(param, value)
    elif param.kind is ParamKind.SELECT:
        fits = not param.options or value in param.options
        code, wanted = IssueCode.PARAM_NOT_IN_OPTIONS, "" if fits else f"one of {', '.join(param.options)}"
    else:
        code, wanted = IssueCode.PARAM_WRONG_TYPE, _check_kind(param.kind, value)
    if not wanted:
        return None
    return Issue(
        f"Node {node_id} ({definition.type}): {param.name} is {_shown(param, value)}; it has to be {wanted}.",
        code,
        node_id,
        _details(param, value),
    )


def _check_number(param: Param, value: JsonValue) -> tuple[IssueCode, str]:
    """The code and what is wanted; the latter is empty for a value that fits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return IssueCode.PARAM_NOT_NUMBER, "a number"
    if isinstance(value, float) and not math.isfinite(value):
        return IssueCode.PARAM_NOT_NUMBER, "a finite number"
    if param.minimum is not None and value < param.minimum:
        return IssueCode.PARAM_BELOW_MIN, f"at least {param.minimum:g}"
    if param.maximum is not None and value > param.maximum:
        return IssueCode.PARAM_ABOVE_MAX, f"at most {param.maximum:g}"
    if param.kind is ParamKind.INT and isinstance(value, float) and not value.is_integer():
        return IssueCode.PARAM_WRONG_TYPE, "a whole number"
    if param.kind is ParamKind.FLOAT and isinstance(value, int) and not _is_float(value):
        return IssueCode.PARAM_ABOVE_MAX, "a number that a float can hold"
    return IssueCode.PARAM_WRONG_TYPE, ""


def _is_float(value: int) -> bool:
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _check_kind(kind: ParamKind, value: JsonValue) -> str:
    if kind is ParamKind.BOOL:
        return "" if isinstance(value, bool) else "true or false"
    if kind is ParamKind.TENSOR_GRID:
        return "" if isinstance(value, list | str) else "a list of numbers, nested for each dimension"
    return "" if isinstance(value, str) else "text"


def _shown(param: Param, value: JsonValue) -> str:
    if param.kind is ParamKind.SECRET:
        return "not text"
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = ascii(value) if isinstance(value, str) else str(_short(value))
    return text if len(text) <= 60 else f"{text[:57]}..."


def _short(value: JsonValue) -> JsonValue:
    """Integers too long to print."""
    if isinstance(value, int) and value.bit_length() > 1024:
        return f"an integer of {value.bit_length()} bits"
    return value


def _details(param: Param, value: JsonValue) -> JsonObject:
    details: JsonObject = {"param": param.name}
    if param.kind is not ParamKind.SECRET and not isinstance(value, dict | list):
        details["value"] = _short(value)
    if param.minimum is not None:
        details["min"] = param.minimum
    if param.maximum is not None:
        details["max"] = param.maximum
    if param.kind is ParamKind.SELECT:
        details["options"] = list(param.options)
    return details
