"""Frames to messages and back, and messages over one frame to parts and back. Pure: no sockets, no time."""

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from .limits import FRAME_BYTES, MESSAGE_BYTES
from .messages import AttemptKey, FromAgent, FromControl, Hello, Part

FROM_AGENT: TypeAdapter[FromAgent] = TypeAdapter(FromAgent)
FROM_CONTROL: TypeAdapter[FromControl] = TypeAdapter(FromControl)

T = TypeVar("T")

_PART_ROOM = 1024
"""Bytes of a ``part`` frame beside its data."""
_HEAD = frozenset({"t", "protocol", "version"})


class BadFrame(Exception):
    """A frame that nobody can read; answered ``bad`` with these two."""

    def __init__(self, word: str, reason: str) -> None:
        super().__init__(f"{word}: {reason}")
        self.word = word
        self.reason = reason


def read_version(frame: str) -> tuple[int, str]:
    """Protocol and version of a first frame, whatever else is in it.

    Raises: BadFrame when it isn't a hello that says both.
    """
    head = _object(frame)
    protocol, version = head.get("protocol"), head.get("version")
    if head.get("t") != "hello" or not isinstance(protocol, int) or not isinstance(version, str):
        raise BadFrame(_word(head), "the first frame has to be a hello with protocol and version")
    return protocol, version


def is_head(frame: str) -> bool:
    """Is this first frame protocol and version alone, the rest of hello following in parts?"""
    return frozenset(_object(frame)) <= _HEAD


def decode(frame: str, adapter: TypeAdapter[T]) -> T:
    """The message of a frame; ``adapter`` is FROM_AGENT or FROM_CONTROL.

    Raises: BadFrame for an unknown word, or fields that don't fit.
    """
    try:
        return adapter.validate_json(frame)
    except ValidationError as error:
        return _decode_slowly(frame, adapter, error)


def _decode_slowly(frame: str, adapter: TypeAdapter[T], error: ValidationError) -> T:
    """Python's own parser reads the escapes of lone surrogates, which the fast one refuses."""
    value = _object(frame)
    if error.errors(include_url=False)[0]["type"] == "json_invalid":
        try:
            return adapter.validate_python(value)
        except ValidationError as second:
            error = second
    raise BadFrame(_word(value), _explain(error)) from error


def _explain(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"].startswith("union_tag"):
        return "unknown word"
    return f"{'.'.join(str(part) for part in first['loc'][1:])}: {first['msg']}"


def _object(frame: str) -> dict[str, Any]:
    try:
        value = json.loads(frame)
    except (ValueError, RecursionError) as error:
        raise BadFrame("", "not JSON") from error
    if not isinstance(value, dict):
        raise BadFrame("", "not a JSON object")
    return value


def _word(value: dict[str, Any]) -> str:
    word = value.get("t")
    return word[:64] if isinstance(word, str) else ""


def encode(message: BaseModel) -> bytes:
    """The frame of a message, UTF-8."""
    try:
        return message.model_dump_json(by_alias=True).encode()
    except ValueError:  # lone surrogates, which only escapes can carry
        value = message.model_dump(by_alias=True)
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def items_frame(key: AttemptKey, lease: str, first: int, items: Sequence[bytes]) -> bytes:
    """A batch, from items that are JSON texts already: nothing of them is parsed."""
    head = json.dumps({"t": "items", "run_id": key.run_id, "attempt": key.attempt, "lease": lease})
    return b'%s,"first":%d,"items":[%s]}' % (head[:-1].encode(), first, b",".join(items))


def frames(message: BaseModel, part_id: str, limit: int = FRAME_BYTES) -> Iterator[bytes]:
    """The frames of a message of any size: itself, or parts named ``part_id``.

    Raises: BadFrame over MESSAGE_BYTES.
    """
    whole = encode(message)
    word = str(getattr(message, "t", ""))
    if len(whole) <= limit:
        yield whole
        return
    if isinstance(message, Hello):
        yield json.dumps({"t": "hello", "protocol": message.protocol, "version": message.version}).encode()
    yield from split(whole, word, part_id, limit)


def split(whole: bytes, word: str, part_id: str, limit: int = FRAME_BYTES) -> Iterator[bytes]:
    """The ``part`` frames of one encoded message, each at most ``limit`` bytes.

    Raises: BadFrame over MESSAGE_BYTES.
    """
    if len(whole) > MESSAGE_BYTES:
        raise BadFrame(word, f"{len(whole)} bytes are more than a message may have ({MESSAGE_BYTES})")
    step = (limit - _PART_ROOM) // 4 * 3
    sha256 = hashlib.sha256(whole).hexdigest()
    pieces = [whole[start : start + step] for start in range(0, len(whole), step)]
    for index, piece in enumerate(pieces):
        yield encode(
            Part(
                id=part_id,
                word=word,
                index=index,
                count=len(pieces),
                bytes=len(whole),
                sha256=sha256,
                data=base64.b64encode(piece).decode(),
            )
        )


class Assembler:
    """Puts the parts of one message at a time together again. Belongs to one connection."""

    def __init__(self, limit_bytes: int = MESSAGE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._first: Part | None = None
        self._data = bytearray()
        self._next = 0

    def add(self, part: Part) -> str | None:
        """The whole message's frame with its last part, else None.

        Raises: BadFrame for a part that doesn't continue what was begun, or a message that is too large or
        isn't what it should be; what was begun is dropped.
        """
        if part.index == 0:
            self._begin(part)
        elif not self._continues(part):
            self._drop()
            raise BadFrame("part", "this part doesn't follow the one before it")
        self._data += _decoded(part)
        self._next += 1
        if len(self._data) > part.bytes:
            self._drop()
            raise BadFrame("part", "the parts are longer than announced")
        return self._finish(part) if self._next == part.count else None

    def _begin(self, part: Part) -> None:
        if self._first is not None:
            self._drop()
            raise BadFrame("part", "another message in parts isn't complete yet")
        if part.bytes > self._limit_bytes:
            raise BadFrame(part.word[:64], f"{part.bytes} bytes are more than {self._limit_bytes}")
        self._first = part

    def _continues(self, part: Part) -> bool:
        begun = self._first
        return begun is not None and part == begun.model_copy(update={"index": self._next, "data": part.data})

    def _finish(self, part: Part) -> str:
        whole = bytes(self._data)
        self._drop()
        if len(whole) != part.bytes or hashlib.sha256(whole).hexdigest() != part.sha256:
            raise BadFrame(part.word[:64], "the parts don't add up to the message")
        try:
            return whole.decode()
        except UnicodeDecodeError as error:
            raise BadFrame(part.word[:64], "not UTF-8") from error

    def _drop(self) -> None:
        self._first, self._next = None, 0
        self._data.clear()


def _decoded(part: Part) -> bytes:
    try:
        return base64.b64decode(part.data, validate=True)
    except ValueError as error:
        raise BadFrame("part", "data is not base64") from error


def live_hash(attempts: Iterable[tuple[str, int]]) -> str:
    """What beats say of the live attempts: 16 hex digits over their sorted keys."""
    text = "\n".join(f"{run_id}.{attempt}" for run_id, attempt in sorted(attempts))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
