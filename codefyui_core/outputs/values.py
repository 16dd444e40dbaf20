"""Turns an answer into the JSON that a client gets."""

import json
import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from codefyui_core.errors import CodefyError, Corrupt
from codefyui_core.plugin.values import JsonObject

from .format import ELEMENTS, SIZES, Kind
from .reading import Answer

AT_ONCE = 16_384
"""Elements that are turned into text in one go: a long value doesn't keep other threads waiting."""


def is_empty(answer: Answer) -> bool:
    """There is nothing to show: the port gave nothing, or nothing is selected."""
    return answer.head.get("kind") == Kind.EMPTY or answer.head.get("elements") == 0


def json_of(answer: Answer, around: JsonObject) -> bytes:
    """UTF-8 JSON: ``around``, the head, and the value where it isn't in the head already.

    Raises: Corrupt.
    """
    head = {name: value for name, value in answer.head.items() if name != "stored"}
    text = json.dumps({**around, **head}, separators=(",", ":"), allow_nan=False).encode()
    if answer.head.get("kind") == Kind.TENSOR and "selected" in answer.head:
        return text[:-1] + b',"values":' + _tensor(answer) + b"}"
    if not answer.body:
        return text
    if not answer.head:  # the body is an object of its own
        return text[:-1] + b"," + answer.body[1:]
    return text[:-1] + b',"value":' + answer.body + b"}"


def _tensor(answer: Answer) -> bytes:
    head: dict[str, Any] = dict(answer.head)
    stored, shape = str(head["stored"]), tuple(int(size) for size in head["selected"])
    size = SIZES.get(stored, 0)
    if not size or len(answer.body) != math.prod(shape) * size:
        raise Corrupt("The worker sent a value that isn't as large as its shape.")
    *outer, inner = shape or (1,)
    rows = [
        _row(answer.body[at : at + inner * size], stored) for at in range(0, len(answer.body), inner * size)
    ]
    if not shape:
        return rows[0][1:-1]
    for count in reversed(outer):
        rows = [b"[" + b",".join(rows[at : at + count]) + b"]" for at in range(0, len(rows), count)]
    return rows[0]


def _row(data: bytes, stored: str) -> bytes:
    step = AT_ONCE * SIZES[stored]
    chunks = (data[at : at + step] for at in range(0, len(data), step))
    texts = (json.dumps(_shown(numbers(chunk, stored)), separators=(",", ":"))[1:-1] for chunk in chunks)
    return b"[" + ",".join(texts).encode() + b"]"


def numbers(data: bytes, stored: str) -> Sequence[Any]:
    """Elements as Python's; complex ones as texts, as JSON has none.

    Raises: CodefyError for an element type that this version doesn't know.
    """
    if stored == "bfloat16":  # the upper half of a float32
        wide = bytearray(2 * len(data))
        wide[2::4], wide[3::4] = data[::2], data[1::2]
        return struct.unpack(f"<{len(data) // 2}f", wide)
    if stored not in ELEMENTS:
        raise CodefyError(f"elements of type {stored} can't be read by this version", code="storage.corrupt")
    code = ELEMENTS[stored]
    found = struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data)
    if stored.startswith("complex"):
        return [str(complex(real, imaginary)) for real, imaginary in _pairs(found)]
    return found


def _pairs(halves: Sequence[float]) -> Iterator[tuple[float, float]]:
    return zip(halves[::2], halves[1::2], strict=True)


def _shown(found: Sequence[Any]) -> Sequence[Any]:
    """JSON has no NaN and no infinity."""
    if found and isinstance(found[0], float) and not all(map(math.isfinite, found)):
        return [value if math.isfinite(value) else {"__float__": _word(value)} for value in found]
    return found


def _word(value: float) -> str:
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"
