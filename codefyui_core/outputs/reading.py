"""Answers questions about a recorded run from its two files, reading no more than what is asked for."""

import json
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import JsonValue, ValidationError

from codefyui_core.errors import CodefyError, Corrupt
from codefyui_core.plugin.values import JsonObject

from . import slices
from .format import DATA, INDEX, OFFSET_BYTES, SIZES, TEXTS, Index, Kind, Recorded, RecordedNode
from .store import OutputStore, not_kept

MAX_ELEMENTS = 1_000_000
BODY_BYTES = 16 << 20
"""The most that one answer carries."""
PRIVATE = "__"
"""Ports that begin so are listed by an index of their own."""

Pread = Callable[[int, int], bytes]
"""``bytes`` at ``offset`` of ``data.bin``."""


class What(StrEnum):
    """What is asked of a recorded run."""

    LIST = "list"
    VALUE = "value"
    STATS = "stats"
    STEPS = "steps"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """``max_elements``: of a value; also characters of a string, items of a list. At most ``MAX_ELEMENTS``."""

    what: What
    node: str = ""
    port: str = ""
    slice: str | None = None
    max_elements: int = 4096


@dataclass(frozen=True, slots=True)
class Answer:
    """``body`` holds the bytes of a value, or JSON when the head says nothing else."""

    head: JsonObject
    body: bytes = b""


def answer(store: OutputStore, run_id: str, question: Question) -> Answer:
    """Blocking.

    Raises: CodefyError ``outputs.not_found``, ``outputs.too_large``, ``request.invalid``; Corrupt for files
    that can't be what was written.
    """
    if question.what is What.REMOVE:
        return Answer({"removed": store.remove(run_id)})
    index, data = _opened(store, run_id)
    try:
        return _answered(index, question, lambda offset, size: _pread(data, offset, size))
    finally:
        os.close(data)


def _opened(store: OutputStore, run_id: str) -> tuple[Index, int]:
    folder = store.folder(run_id)
    try:
        data = os.open(folder / DATA, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    except OSError as error:
        raise not_kept(run_id) from error
    try:
        return _index(folder / INDEX, os.fstat(data).st_size), data
    except BaseException as error:
        os.close(data)
        if isinstance(error, OSError):
            raise not_kept(run_id) from error
        raise


def _index(path: Path, data_bytes: int) -> Index:
    try:
        index = Index.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise damaged(f"{INDEX} can't be read") from error
    if data_bytes != index.data_bytes:
        raise damaged(f"{DATA} has another size than it was written with")
    return index


def _pread(data: int, offset: int, size: int) -> bytes:
    if hasattr(os, "pread"):
        found = os.pread(data, size, offset)
    else:  # Windows; the descriptor is this call's alone
        os.lseek(data, offset, os.SEEK_SET)
        found = os.read(data, size)
    if len(found) != size:
        raise damaged(f"{DATA} ends early")
    return found


def _answered(index: Index, question: Question, pread: Pread) -> Answer:
    match question.what:
        case What.LIST:
            return Answer({}, json.dumps(listing(index)).encode())
        case What.STEPS:
            return Answer({}, json.dumps(steps(_node(index, question.node))).encode())
        case What.STATS:
            return _stats(_port(index, question), pread)
        case _:
            return _value(_port(index, question), question, pread)


# ------------------------------------------------------------ lists


def listing(index: Index) -> JsonObject:
    """Every node with its ports, without values."""
    nodes: list[JsonValue] = [
        {
            "node_id": node.node_id,
            "type": node.type,
            "container": node.container,
            "ports": [_shown(one) for one in node.ports if not one.port.startswith(PRIVATE)],
            "steps": len(node.steps),
        }
        for node in index.nodes
    ]
    return {"recorded_at_ms": index.recorded_at_ms, "bytes": index.data_bytes, "nodes": nodes}


def _shown(one: Recorded) -> JsonObject:
    return {
        "port": one.port,
        "kind": one.kind.value,
        "dtype": one.dtype,
        "shape": None if one.shape is None else list(one.shape),
        "length": one.length,
        "bytes": one.bytes,
        "elided": one.elided,
    }


def steps(node: RecordedNode) -> JsonObject:
    """The steps that a node showed, with the port of each tensor."""
    ports = {one.port: one for one in node.ports}
    found: list[JsonValue] = [
        {
            "index": number,
            "name": step.name,
            "description": step.description,
            "scalars": step.scalars,
            "tensors": [
                {"name": name, **_shown(ports[port])} for name, port in step.tensors.items() if port in ports
            ],
        }
        for number, step in enumerate(node.steps)
    ]
    return {"steps": found}


def _node(index: Index, node_id: str) -> RecordedNode:
    for node in index.nodes:
        if node.node_id == node_id:
            return node
    raise _missing(f"the run recorded no node {node_id}; it may not have run")


def _port(index: Index, question: Question) -> Recorded:
    node = _node(index, question.node)
    for one in node.ports:
        if one.port == question.port:
            return one
    raise _missing(f"node {node.node_id} recorded no {question.port}")


# ------------------------------------------------------------ values


def _stats(one: Recorded, pread: Pread) -> Answer:
    _must_be_kept(one)
    if one.stats is None:
        return Answer({"kind": Kind.EMPTY.value})
    stats: JsonObject = _json(pread(one.stats.offset, one.stats.bytes))
    return Answer({"kind": one.kind.value, "dtype": one.dtype, "stats": stats})


def _value(one: Recorded, question: Question, pread: Pread) -> Answer:
    _must_be_kept(one)
    match one.kind:
        case Kind.TENSOR:
            return _tensor(one, question, pread)
        case Kind.STRING:
            return _string(one, question, pread)
        case Kind.LIST | Kind.DICT:
            return _items(one, question, pread)
        case _:
            body = b"" if one.kind is Kind.EMPTY else json.dumps(one.value).encode()
            return Answer({"kind": one.kind.value}, body)


def _tensor(one: Recorded, question: Question, pread: Pread) -> Answer:
    shape, stored, data = _known(one.shape), _known(one.stored), _known(one.data)
    axes = slices.parse(question.slice, shape)
    count = slices.elements(axes)
    _must_fit(count, question.max_elements, "elements")
    itemsize = SIZES.get(stored, 0)
    if not itemsize or data.bytes != _whole(shape) * itemsize:
        raise damaged(f"{one.port} isn't as large as its shape")
    body = b"".join(
        _picked(pread(data.offset + piece.offset, piece.bytes), piece)
        for piece in slices.pieces(axes, shape, itemsize)
    )
    head: JsonObject = {
        "kind": one.kind.value,
        "dtype": one.dtype,
        "stored": stored,
        "shape": list(shape),
        "slice": question.slice,
        "selected": list(slices.selected(axes)),
        "elements": count,
    }
    return Answer(head, body)


def _picked(read: bytes, piece: slices.Piece) -> bytes:
    if piece.size == piece.bytes:
        return read
    return b"".join(read[start : start + piece.size] for start in range(0, len(read), piece.pitch))


def _string(one: Recorded, question: Question, pread: Pread) -> Answer:
    encoding, data, (axis, head) = _known(one.stored), _known(one.data), _line(one, question, "characters")
    width = TEXTS.get(encoding, 0)
    if not width or data.bytes != _known(one.length) * width:
        raise damaged(f"{one.port} isn't as long as it was")
    text = pread(data.offset + axis.start * width, axis.count * width).decode(encoding, "surrogatepass")
    return Answer(head, json.dumps(text).encode())


def _items(one: Recorded, question: Question, pread: Pread) -> Answer:
    data, table, (axis, head) = _known(one.data), _known(one.table), _line(one, question, "items")
    if table.bytes != (_known(one.length) + 1) * OFFSET_BYTES:
        raise damaged(f"{one.port} isn't as long as it was")
    raw = pread(table.offset + axis.start * OFFSET_BYTES, (axis.count + 1) * OFFSET_BYTES)
    ends = struct.unpack(f"<{axis.count + 1}Q", raw)
    size = ends[-1] - ends[0]
    if not 0 <= size <= data.bytes or ends[-1] > data.bytes:
        raise damaged(f"the table of {one.port} leads out of it")
    if size > BODY_BYTES:
        raise _too_large(f"these items take {size} bytes; an answer has {BODY_BYTES} at most")
    read = pread(data.offset + ends[0], size)
    first = ends[0]
    items = [read[a - first : b - first] for a, b in pairwise(ends)]
    opening, closing = (b"{", b"}") if one.kind is Kind.DICT else (b"[", b"]")
    return Answer(head, opening + b",".join(items) + closing)


def _line(one: Recorded, question: Question, unit: str) -> tuple[slices.Axis, JsonObject]:
    """A slice of what has one axis; steps of it aren't served."""
    (axis,) = slices.parse(question.slice, (_known(one.length),))
    if axis.step != 1:
        raise CodefyError(f"a {one.kind} is read in one piece; leave the step out", code="request.invalid")
    _must_fit(axis.count, question.max_elements, unit)
    head: JsonObject = {
        "kind": one.kind.value,
        "length": one.length,
        "slice": question.slice,
        "selected": [axis.count],
        "elements": axis.count,
    }
    return axis, head


def _must_be_kept(one: Recorded) -> None:
    if one.elided is not None:
        raise _missing(f"{one.port} wasn't kept: {one.elided} ({one.bytes} bytes)")


def _must_fit(count: int, limit: int, unit: str) -> None:
    if count > min(limit, MAX_ELEMENTS):
        raise _too_large(
            f"that are {count} {unit}, and max_elements is {limit}; take a smaller slice, or raise max_elements "
            f"({MAX_ELEMENTS} at most)"
        )


def _whole(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _known(value: Any) -> Any:
    """A field that this kind of value always has."""
    if value is None:
        raise damaged("an entry lacks what its kind needs")
    return value


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise damaged("what should be JSON isn't") from error


def _missing(message: str) -> CodefyError:
    return CodefyError(message, code="outputs.not_found")


def _too_large(message: str) -> CodefyError:
    return CodefyError(message, code="outputs.too_large")


def damaged(message: str) -> Corrupt:
    return Corrupt(f"The recorded outputs are damaged: {message}. Run it again to record them anew.")
