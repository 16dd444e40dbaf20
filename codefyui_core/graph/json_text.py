"""JSON as standards have it (RFC 8259): no NaN, no infinity, UTF-8, and not nested without end."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from pydantic import JsonValue

from ..errors import CodefyError

DEPTH_LIMIT = 200
"""Deeper documents are refused, so that nothing that walks one can exhaust the interpreter's stack."""
_INTEGER_BITS = 14_000
"""Just below the 4300 digits that Python turns into text and back."""

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?Infinity|NaN|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?', re.DOTALL)


class NotJson(CodefyError):
    """Text that is no JSON, with the line and column where it stops being it."""

    default_code = "request.not_json"

    def __init__(self, message: str, *, line: int | None = None, column: int | None = None) -> None:
        place = f" at line {line}, column {column}" if line else ""
        super().__init__(f"{message}{place}.")
        self.line = line
        self.column = column


class _NotFinite(Exception):
    """Raised out of the parser's callbacks, which don't know where they are."""


def loads(source: bytes | str) -> JsonValue:
    """Parse; of doubled keys the last wins.

    Raises: NotJson, with the position where there is one.
    """
    text = _decode(source) if isinstance(source, bytes) else source
    try:
        value: JsonValue = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise NotJson(error.msg, line=error.lineno, column=error.colno) from None
    except _NotFinite:
        raise _not_finite(text) from None
    except RecursionError:
        raise NotJson(f"It is nested deeper than {DEPTH_LIMIT} levels") from None
    except ValueError:  # the interpreter's limit on digits
        raise NotJson("It holds an integer with too many digits") from None
    if (problem := problem_of(value)) is not None:
        raise NotJson(problem)
    return value


def dumps(value: Any) -> str:
    """Compact text, letters as they are. Raises: ValueError for NaN and infinity."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def canonical(value: Any) -> bytes:
    """One text for equal values: keys sorted, no blanks, ASCII alone."""
    return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":")).encode("ascii")


def problem_of(value: Any) -> str | None:
    """Why a Python value has no JSON text: a type, a key, a non-finite number, text that isn't Unicode (a lone
    surrogate, which no database and no UTF-8 can hold), or its depth. None: it has.
    """
    pending: list[tuple[Any, str, int]] = [(value, "", 1)]
    while pending:
        item, path, depth = pending.pop()
        if isinstance(item, float) and not math.isfinite(item):
            return f"{_shown(path)} is {item}, which JSON can't hold"
        if isinstance(item, int) and item.bit_length() > _INTEGER_BITS:
            return f"{_shown(path)} is an integer with too many digits"
        if isinstance(item, str) and not _is_unicode(item):
            return f"{_shown(path)} is text that isn't Unicode"
        if item is None or isinstance(item, str | bool | int | float):
            continue
        if depth > DEPTH_LIMIT:
            return f"It is nested deeper than {DEPTH_LIMIT} levels"
        below = _below(item)
        if below is None:
            return f"{_shown(path)} is {_what(item)}, which JSON can't hold"
        pending.extend((child, f"{path}/{key}", depth + 1) for key, child in below)
    return None


def _what(item: Any) -> str:
    return "an object with such keys" if isinstance(item, Mapping) else f"of type {type(item).__name__}"


def _shown(path: str) -> str:
    return path.encode("ascii", "backslashreplace").decode() or "The value"


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _below(item: Any) -> Iterable[tuple[object, Any]] | None:
    if isinstance(item, Mapping):
        fine = all(isinstance(key, str) and _is_unicode(key) for key in item)
        return item.items() if fine else None
    if isinstance(item, list | tuple):
        return enumerate(item)
    return None


def _decode(source: bytes) -> str:
    try:
        return source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = source[: error.start]
        line = before.count(b"\n") + 1
        raise NotJson("It isn't UTF-8", line=line, column=error.start - before.rfind(b"\n")) from None


def _refuse(_: str) -> NoReturn:
    raise _NotFinite


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _NotFinite
    return value


def _not_finite(text: str) -> NotJson:
    for token in _TOKEN.finditer(text):
        word = token.group()
        if word[0] != '"' and not word.lstrip("-").isdigit() and not math.isfinite(float(word)):
            line = text.count("\n", 0, token.start()) + 1
            column = token.start() - text.rfind("\n", 0, token.start())
            return NotJson(f"{word[:40]} is no number that JSON can hold", line=line, column=column)
    return NotJson("It holds a number that JSON can't hold")
