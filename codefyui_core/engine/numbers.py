"""The one encoder of what leaves a run process, and the decoder of its non-finite numbers.

JSON has no NaN and no infinity: they travel as ``{"__float__": "nan" | "inf" | "-inf"}``.
"""

import json
import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from pathlib import PurePath
from typing import Any

from pydantic import JsonValue

try:
    import orjson
except ImportError:  # a bare core, as on a machine with node packs only
    orjson = None  # type: ignore[assignment]

FLOAT = "__float__"
_SHOWN = 200


def encode(document: Mapping[str, Any]) -> bytes:
    """One line of UTF-8 JSON. What JSON can't hold is turned into what ``plain`` says."""
    value = plain(document)
    if orjson is not None:
        try:
            return orjson.dumps(value)
        except TypeError:
            pass  # an integer over 64 bits, or half a surrogate pair: only the standard library writes those
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def plain(value: Any) -> JsonValue:
    """``value`` as JSON: tuples and sets as lists, numbers and arrays of numpy and torch as Python's, paths as
    text, and anything else as a short text.
    """
    kind = type(value)
    if value is None or kind is str or kind is bool or kind is int:
        return value  # type: ignore[no-any-return]
    if kind is float:
        return value if math.isfinite(value) else {FLOAT: _word(value)}
    if isinstance(value, Mapping):
        return {key if type(key) is str else str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return _converted(value)


def _converted(value: Any) -> JsonValue:
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, str | bool):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return plain(float(value))
    if isinstance(value, AbstractSet):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _word(value: float) -> str:
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"


def restore(value: JsonValue) -> Any:
    """The reverse for non-finite numbers, at any depth."""
    if isinstance(value, dict):
        word = value.get(FLOAT)
        if len(value) == 1 and isinstance(word, str) and word in ("nan", "inf", "-inf"):
            return float(word)
        return {key: restore(item) for key, item in value.items()}
    if isinstance(value, list):
        return [restore(item) for item in value]
    return value
