"""The process tree of one run, as the supervisor holds it: an abstract one, and one with a keeper (Linux)."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from .cgroups import RunGroup
from .requests import KILL, TreeEnd
from .strays import Strays


class Tree(Protocol):
    """All processes of one run."""

    @property
    def pid(self) -> int:
        """Of the process with the user code."""
        ...

    def kill(self) -> None:
        """End all of them at once. Idempotent."""
        ...

    async def gone(self) -> TreeEnd:
        """Waits until every process of it has ended; once."""
        ...


class KeptTree:
    """A run with its keeper, which is a child of this process."""

    def __init__(
        self,
        *,
        keeper: int,
        run: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        reap: Callable[[], object],
        strays: Strays,
        group: RunGroup | None = None,
    ) -> None:
        self.pid = run
        self.keeper = keeper
        self._reader = reader
        self._writer = writer
        self._reap = reap
        self._strays = strays
        self._group = group
        self._pidfd = os.pidfd_open(keeper)

    def kill(self) -> None:
        with suppress(ConnectionError, RuntimeError):
            self._writer.write(KILL)

    async def gone(self) -> TreeEnd:
        """The keeper's end is the tree's, unless somebody killed the keeper: then we finish its work."""
        await exited(self._pidfd)
        os.close(self._pidfd)
        self._reap()
        end = await self._last_word()
        self._writer.close()
        if end is None:
            if self._group is not None:
                self._group.end()
            await self._strays.end(self.pid)
            if self._group is not None:
                self._group.remove()
            return TreeEnd(signal=signal.SIGKILL)
        return end

    async def _last_word(self) -> TreeEnd | None:
        """Everything that the keeper wrote is in the socket already; a stray can't hold its other end."""
        with suppress(ConnectionError, ValueError, TimeoutError):
            async with asyncio.timeout(5):
                line = await self._reader.readline()
                return TreeEnd.from_json(json.loads(line)["end"]) if line else None
        return None


async def exited(pidfd: int) -> None:
    """Waits until the process of a pidfd has ended; doesn't reap it."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def notice() -> None:
        if not ended.done():
            ended.set_result(None)

    loop.add_reader(pidfd, notice)
    try:
        await ended
    finally:
        loop.remove_reader(pidfd)


def reap(pid: int) -> None:
    """Take the status of a child that has ended."""
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
