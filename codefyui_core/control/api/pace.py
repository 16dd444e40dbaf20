"""Bodies that hardly come are cut: each holds a connection and a handler, and may go on like that for years."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import StreamReader

from codefyui_core.clocks import AfterPause, AttentiveClock
from codefyui_core.errors import CodefyError

LOOK_S = 60.0
LEAST_BYTES = 8 * 1024
"""In LOOK_S; a modem of 1990 sends twice as many."""


@asynccontextmanager
async def at_a_pace(content: StreamReader, clock: AttentiveClock) -> AsyncIterator[None]:
    """A block that reads a body.

    Raises: CodefyError ``request.too_slow``, where the block waits, when too little of the body came.
    """
    if content.is_eof():
        yield
        return
    try:
        async with asyncio.timeout(None) as limit:
            pace = _Pace(content, clock, limit)
            try:
                yield
            finally:
                pace.timer.cancel()
    except TimeoutError:
        if not limit.expired():
            raise
        raise CodefyError(
            f"The body comes too slowly: less than {LEAST_BYTES} bytes in {LOOK_S:g} s. Send it again over a better line.",
            code="request.too_slow",
        ) from None


class _Pace:
    def __init__(self, content: StreamReader, clock: AttentiveClock, limit: asyncio.Timeout) -> None:
        self._content = content
        self._limit = limit
        self._before = content.total_bytes
        self.timer = clock.timer(LOOK_S, self._look, after_pause=AfterPause.RESTART)

    def _look(self) -> None:
        if self._content.is_eof():
            return
        arrived = self._content.total_bytes - self._before
        unread = self._content._size > 0  # then it is this server that is slow
        if arrived < LEAST_BYTES and not unread:
            self._limit.reschedule(asyncio.get_running_loop().time())
            return
        self._before = self._content.total_bytes
        self.timer.restart()
