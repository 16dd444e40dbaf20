"""One record of a spool, as bytes: magic, version, kind, length, seq, CRC32C, payload. Pure.

The magic begins with a byte that UTF-8 never has, and payloads are UTF-8, so a reader that lost its place
finds the next record by looking for it.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

import google_crc32c

from codefyui_core.wire.messages import ItemKind

MAGIC = b"\xc0\xde"
VERSION = 1
HEADER = struct.Struct(">2sBBIQI")
_CHECKED = struct.Struct(">BBIQ")
MAX_PAYLOAD = 1 << 20

_NUMBERS = {
    ItemKind.ACCEPTED: 1,
    ItemKind.EVENT: 2,
    ItemKind.ENVIRONMENT: 3,
    ItemKind.EXITED: 4,
    ItemKind.TOLD: 5,
    ItemKind.SKIP: 6,
    ItemKind.END: 7,
}
_KINDS = {number: kind for kind, number in _NUMBERS.items()}


class Record(NamedTuple):
    """A good record and where it lies in its segment. A tuple: a backlog is read by the million."""

    seq: int
    kind: ItemKind
    payload: bytes
    offset: int

    @property
    def end(self) -> int:
        return self.offset + HEADER.size + len(self.payload)


def encode_record(seq: int, kind: ItemKind, payload: bytes) -> bytes:
    """``payload`` is the whole item as JSON, UTF-8."""
    number = _NUMBERS[kind]
    checked = _CHECKED.pack(VERSION, number, len(payload), seq)
    crc = google_crc32c.extend(google_crc32c.value(checked), payload)
    return HEADER.pack(MAGIC, VERSION, number, len(payload), seq, crc) + payload


def scan(data: bytes, after: int = 0) -> Iterator[Record]:
    """The good records of a segment, in order, with a seq beyond ``after``. What lies between them is damaged;
    what lies behind the last one is a torn tail.
    """
    offset = 0
    while offset < len(data):
        record = _record_at(data, offset)
        if record is not None and record.seq > after:
            yield record
            after = record.seq
            offset = record.end
            continue
        offset = data.find(MAGIC, offset + 1)
        if offset < 0:
            return


def _record_at(data: bytes, offset: int) -> Record | None:
    if len(data) - offset < HEADER.size:
        return None
    magic, version, number, length, seq, crc = HEADER.unpack_from(data, offset)
    if magic != MAGIC or version != VERSION or number not in _KINDS or length > MAX_PAYLOAD:
        return None
    start = offset + HEADER.size
    payload = data[start : start + length]
    if len(payload) < length:
        return None
    checked = _CHECKED.pack(version, number, length, seq)
    if google_crc32c.extend(google_crc32c.value(checked), payload) != crc:
        return None
    return Record(seq, _KINDS[number], payload, offset)
