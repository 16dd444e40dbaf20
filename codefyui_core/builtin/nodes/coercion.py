"""Arguments of a graph: JSON from a caller is taken strictly, text from the canvas is parsed."""

import json
from enum import StrEnum
from typing import Any, NoReturn

from codefyui_core.plugin import CodefyError


class InputType(StrEnum):
    """What an argument may be."""

    STRING = "string"
    NUMBER = "number"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    JSON = "json"
    IMAGE = "image"


class BadArgument(CodefyError):
    """An argument or default that doesn't have the declared type."""

    default_code = "graph.bad_argument"


def from_json(name: str, kind: InputType, value: Any) -> Any:
    """What a caller passed. True is no number; 3.0 is an integer and 3.5 is none.

    Raises: BadArgument.
    """
    match kind:
        case InputType.STRING if isinstance(value, str):
            return value
        case InputType.NUMBER if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        case InputType.INTEGER if isinstance(value, int) and not isinstance(value, bool):
            return value
        case InputType.INTEGER if isinstance(value, float) and value.is_integer():
            return int(value)
        case InputType.BOOLEAN if isinstance(value, bool):
            return value
        case InputType.BOOLEAN if isinstance(value, str) and value.strip().lower() in {"true", "false"}:
            return value.strip().lower() == "true"
        case InputType.JSON:
            return value
        case _:
            return refuse(name, kind, value)


def from_text(name: str, kind: InputType, text: str) -> Any:
    """A default as it was typed.

    Raises: BadArgument.
    """
    try:
        match kind:
            case InputType.NUMBER:
                return float(text)
            case InputType.INTEGER:
                return from_json(name, kind, float(text) if "." in text else int(text))
            case InputType.JSON:
                return json.loads(text)
            case _:
                return from_json(name, kind, text)
    except ValueError:
        return refuse(name, kind, text)


def refuse(name: str, kind: InputType, value: Any) -> NoReturn:
    """Raises: BadArgument."""
    if value == "":
        raise BadArgument(f"input {name}: nothing was passed and it has no default; pass a {kind.value}")
    shown = repr(value)
    raise BadArgument(f"input {name}: {shown if len(shown) <= 60 else shown[:57] + '...'} is no {kind.value}")
