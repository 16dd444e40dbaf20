"""Writes what a run recorded. In the run's process, after its outcome was told."""

import json
import os
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from pydantic import JsonValue

from codefyui_core.plugin.values import JsonObject

from .format import DATA, INDEX, Index, Kind, Recorded, RecordedNode, Span, Step
from .store import OutputStore, now_ms

Chunk = bytes | memoryview
ENTRY_BYTES = 512
STATS_BYTES = 2048
"""About what an entry of the index, and statistics, take."""
NO_ROOM = "this machine has no room for it"
_ALIGNED = 64


@dataclass(slots=True, kw_only=True)
class Captured:
    """One value, held until it is written."""

    port: str
    kind: Kind
    bytes: int = 0
    dtype: str | None = None
    stored: str | None = None
    shape: tuple[int, ...] | None = None
    length: int | None = None
    value: JsonValue = None
    chunks: Callable[[], Iterable[Chunk]] | None = None
    """The bytes; called once."""
    table: Sequence[int] | None = None
    """Offsets of a list's items, and the end."""
    stats: Callable[[], JsonObject | None] | None = None
    elided: str | None = None

    @property
    def room(self) -> int:
        """About what it takes on disk."""
        table = 0 if self.table is None else 8 * len(self.table)
        return self.bytes + table + ENTRY_BYTES + (STATS_BYTES if self.stats is not None else 0)

    def without_value(self, why: str) -> "Captured":
        """What is told of it when it isn't kept."""
        return Captured(
            port=self.port,
            kind=self.kind,
            bytes=self.bytes,
            dtype=self.dtype,
            shape=self.shape,
            length=self.length,
            elided=why,
        )


@dataclass(slots=True, kw_only=True)
class CapturedNode:
    """What one node gave."""

    node_id: str
    type: str
    container: str | None = None
    ports: list[Captured] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


def write(store: OutputStore, run_id: str, nodes: Sequence[CapturedNode]) -> None:
    """Whole or not at all. What there is no room for is elided, the first values staying.

    Raises: OSError.
    """
    fitting = _fitting(nodes, store.room())
    store.make_room(max(1, sum(one.room for node in fitting for one in node.ports if not one.elided)))
    staging = store.begin(run_id)
    with (staging / DATA).open("xb") as file:
        written = tuple(_node(file, node) for node in fitting)
        size = file.tell()
        _sync(file)
    index = Index(run_id=run_id, recorded_at_ms=now_ms(), data_bytes=size, nodes=written)
    with (staging / INDEX).open("xb") as file:
        file.write(index.model_dump_json().encode())
        _sync(file)
    store.publish(run_id)


def _fitting(nodes: Sequence[CapturedNode], left: int) -> Sequence[CapturedNode]:
    fitting = []
    for node in nodes:
        ports = []
        for one in node.ports:
            kept = one if one.elided or one.room <= left else one.without_value(NO_ROOM)
            left -= 0 if kept.elided else kept.room
            ports.append(kept)
        fitting.append(replace(node, ports=ports))
    return fitting


def _node(file: BinaryIO, node: CapturedNode) -> RecordedNode:
    return RecordedNode(
        node_id=node.node_id,
        type=node.type,
        container=node.container,
        ports=tuple(_port(file, one) for one in node.ports),
        steps=tuple(node.steps),
    )


def _port(file: BinaryIO, one: Captured) -> Recorded:
    data = None if one.chunks is None else _blob(file, one.chunks())
    table = None
    if one.table is not None:
        table = _blob(file, [struct.pack(f"<{len(one.table)}Q", *one.table)])
    found = None if one.stats is None else one.stats()
    stats = None if found is None else _blob(file, [json.dumps(found, allow_nan=False).encode()])
    return Recorded(
        port=one.port,
        kind=one.kind,
        bytes=one.bytes,
        dtype=one.dtype,
        stored=one.stored,
        shape=one.shape,
        length=one.length,
        value=one.value,
        data=data,
        table=table,
        stats=stats,
        elided=one.elided,
    )


def _blob(file: BinaryIO, chunks: Iterable[Chunk]) -> Span:
    file.write(bytes(-file.tell() % _ALIGNED))
    start = file.tell()
    for chunk in chunks:
        file.write(chunk)
    return Span(offset=start, bytes=file.tell() - start)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
