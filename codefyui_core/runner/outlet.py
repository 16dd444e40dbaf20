"""One run's lines from all its pipes, in the order of arrival, held back while nobody takes them."""

import asyncio
from collections import deque

LIMIT_BYTES = 256 << 10


class Outlet:
    """A queue bounded by bytes. One taker, several givers."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._limit: float = limit_bytes
        self._closed = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def put(self, line: bytes) -> None:
        """Waits while the queue is full; a line that is larger than the whole queue passes when it is empty."""
        while self._bytes and self._bytes + len(line) > self._limit:
            self._room.clear()
            await self._room.wait()
        self._lines.append(line)
        self._bytes += len(line)
        self._changed.set()

    def lift(self) -> None:
        """The run is gone: what is left in its pipes is bounded by them, so take it in."""
        self._limit = float("inf")
        self._room.set()

    def close(self) -> None:
        """No more will come."""
        self._closed = True
        self._changed.set()

    async def take(self) -> bytes | None:
        """The next line; None after the last."""
        while not self._lines:
            if self._closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        line = self._lines.popleft()
        self._bytes -= len(line)
        self._room.set()
        return line
