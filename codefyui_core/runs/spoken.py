"""One line of a run process, read by the same rules on both planes. Pure.

User code may write to the event pipe, too: whatever comes there becomes an event, or a note in its place.
"""

import hashlib
from typing import Any, NamedTuple

from codefyui_core.plugin.values import JsonObject

from .events import read_text

KINDS = frozenset({"event", "environment", "outcome"})
"""What a run process may say; other items of a stream are its agent's to make."""
NESTING = 150
"""Levels of a line. Parsers and writers on the way stop at 200 and more, with some levels of their own around it."""
REASON_CHARS = 300
TEXT_CHARS = 9_000


class Spoken(NamedTuple):
    """A line that was understood. A tuple: there are tens of thousands a second."""

    kind: str
    type: str | None
    payload: dict[str, Any]
    ts: int | None


def read_line(line: bytes) -> Spoken:
    """Raises: ValueError that says what is wrong with it."""
    try:
        said = read_text(line)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if not isinstance(said, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004  of a text, and not of our own code
    kind, type_, ts = said.get("kind"), said.get("type"), said.get("ts")
    payload = said.get("payload")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"a run says nothing of the kind {str(kind)[:64]!r}")
    if kind == "event" and not isinstance(type_, str):
        raise ValueError("an event without a type")
    if payload is not None and not isinstance(payload, dict):
        raise ValueError("its payload is no JSON object")
    if ts is not None and (type(ts) is not int or abs(ts) >= 1 << 63):
        raise ValueError("its ts is no time in milliseconds")
    if line.count(b"{") + line.count(b"[") > NESTING and _depth(said) > NESTING:
        raise ValueError(_TOO_DEEP)
    return Spoken(kind, type_ if kind == "event" else None, payload or {}, ts)


_TOO_DEEP = f"it is nested deeper than {NESTING} levels"


def unreadable(line: bytes, error: Exception) -> JsonObject:
    """The payload of the ``event_unstorable`` that stands in the place of a line."""
    return {
        "bytes": len(line),
        "sha256": hashlib.sha256(line).hexdigest(),
        "reason": str(error)[:REASON_CHARS],
    }


def said_text(value: object) -> str | None:
    """A text of an outcome. The engine's own are no longer; what a frame can't hold would never arrive."""
    return value[:TEXT_CHARS] if isinstance(value, str) else None


def _depth(value: Any) -> int:
    """Levels of lists and objects, found without recursion; one more than NESTING stands for all beyond."""
    depth, level = 0, [value]
    while level and depth <= NESTING:
        depth += 1
        level = [item for one in level for item in _items(one) if isinstance(item, dict | list)]
    return depth


def _items(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value
