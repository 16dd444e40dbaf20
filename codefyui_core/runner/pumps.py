"""Reads the pipes of a run into its outlet."""

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable

from .log_text import GATHER_BYTES, GATHER_S, Lines, Tail, log_event
from .outlet import Outlet
from .requests import READY, WRITTEN

CHUNK_BYTES = 64 << 10
LINE_LIMIT_BYTES = 512 << 10
_OUTCOME = b'{"kind":"outcome"'


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class EventPump:
    """The event pipe. The outcome is kept aside, so that it comes after everything else."""

    def __init__(
        self,
        source: asyncio.StreamReader,
        outlet: Outlet,
        on_outcome: Callable[[], None],
        on_written: Callable[[], None],
    ) -> None:
        self._source = source
        self._outlet = outlet
        self._on_outcome = on_outcome
        self._on_written = on_written
        self.outcome: bytes | None = None
        self.ready = asyncio.Event()

    async def run(self) -> None:
        line = _LongLine()
        while data := await self._source.read(CHUNK_BYTES):
            *ends, rest = data.split(b"\n")
            for part in ends:
                line.add(part)
                await self._take(line.finish())
            line.add(rest)

    async def _take(self, line: bytes) -> None:
        """A line that isn't JSON text (user code wrote to the pipe's descriptor) is reported, not passed on."""
        if line == READY:
            self.ready.set()
        elif line == WRITTEN:
            self._on_written()
        elif line.startswith(_OUTCOME):
            self.outcome = line
            self._on_outcome()
        elif _is_object(line):
            await self._outlet.put(line)
        elif line:
            await self._outlet.put(log_event("stderr", [line.decode("utf-8", errors="replace")], now_ms()))


def _is_object(line: bytes) -> bool:
    """Cheap, as it is asked of every line: the run process wrote it with one encoder."""
    if not (line.startswith(b'{"kind":"') and line.endswith(b"}")):
        return False
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


class _LongLine:
    """One line; past 512 KiB only its length and hash are kept."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._bytes = 0
        self._hash = hashlib.sha256()

    def add(self, part: bytes) -> None:
        self._bytes += len(part)
        if self._bytes <= LINE_LIMIT_BYTES:
            self._data += part
            return
        self._hash.update(self._data)
        self._hash.update(part)
        self._data.clear()

    def finish(self) -> bytes:
        whole, size, digest = bytes(self._data), self._bytes, self._hash
        self._data, self._bytes, self._hash = bytearray(), 0, hashlib.sha256()
        if size <= LINE_LIMIT_BYTES:
            return whole
        payload = {"bytes": size, "sha256": digest.hexdigest()}
        return json.dumps(
            {"kind": "event", "type": "event_too_large", "payload": payload, "ts": now_ms()},
            separators=(",", ":"),
        ).encode()


class TextPump:
    """Standard output or error: lines gathered for at most 100 ms or 64 KiB become one ``log`` event."""

    def __init__(self, source: asyncio.StreamReader, stream: str, outlet: Outlet, tail: Tail | None) -> None:
        self._source = source
        self._stream = stream
        self._outlet = outlet
        self._tail = tail
        self._lines = Lines()

    async def run(self) -> None:
        while data := await self._source.read(CHUNK_BYTES):
            lines = self._split(data)
            ended = await self._gather(lines, len(data))
            await self._say(lines)
            if ended:
                break
        last = self._lines.end()
        self._keep(last)
        await self._say(last)

    async def _gather(self, lines: list[str], size: int) -> bool:
        """Add what comes within the time; True at the end of the stream."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + GATHER_S
        while size < GATHER_BYTES:
            data = await _within(self._source.read(GATHER_BYTES - size), deadline - loop.time())
            if data is None:
                return False
            if not data:
                return True
            size += len(data)
            lines += self._split(data)
        return False

    def _split(self, data: bytes) -> list[str]:
        lines = self._lines.feed(data)
        self._keep(lines)
        return lines

    def _keep(self, lines: list[str]) -> None:
        if self._tail is not None:
            self._tail.add(lines)

    async def _say(self, lines: list[str]) -> None:
        """Control characters take six bytes each in JSON: what would be too long for one event is halved."""
        if not lines:
            return
        event = log_event(self._stream, lines, now_ms())
        if len(event) > LINE_LIMIT_BYTES and len(lines) > 1:
            await self._say(lines[: len(lines) // 2])
            await self._say(lines[len(lines) // 2 :])
        else:
            await self._outlet.put(event)


async def _within(reading: Awaitable[bytes], seconds: float) -> bytes | None:
    try:
        return await asyncio.wait_for(reading, max(seconds, 0.001))
    except TimeoutError:
        return None
