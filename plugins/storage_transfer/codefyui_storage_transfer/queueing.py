"""Files of one session wait for others; while those move, they aren't hanging."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from codefyui_core.plugin import CodefyError, Progress

SIGN_S = 60.0


class Queue:
    """Bytes of any file are a sign of life for all that wait."""

    def __init__(self) -> None:
        self._waiting: dict[int, Progress] = {}
        self._moved = False
        self._timer: asyncio.TimerHandle | None = None

    def watched(self, progress: Progress) -> Progress:
        """The same, heard here."""
        return _Watched(self, progress)

    def moved(self) -> None:
        self._moved = True

    @contextmanager
    def waits(self, progress: Progress) -> Iterator[None]:
        self._waiting[id(progress)] = progress
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SIGN_S, self._look)
        try:
            yield
        finally:
            del self._waiting[id(progress)]
            if not self._waiting and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _look(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SIGN_S, self._look)
        moved, self._moved = self._moved, False
        for progress in list(self._waiting.values()) if moved else ():
            with suppress(CodefyError):  # who stops it ends its waiting
                progress.advance(0)


class _Watched:
    """Implements ``Progress``."""

    def __init__(self, queue: Queue, progress: Progress) -> None:
        self._queue = queue
        self._progress = progress

    def advance(self, n_bytes: int) -> None:
        if n_bytes:
            self._queue.moved()
        self._progress.advance(n_bytes)
