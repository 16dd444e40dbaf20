"""One run as its owner sees it: a process tree, its pipes, its control connection, and its end."""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass

from codefyui_core.errors import CodefyError

from .api import Ending, Go
from .log_text import Tail
from .outlet import Outlet
from .pumps import EventPump, TextPump
from .requests import TreeEnd
from .tree import Tree

DRAIN_S = 2.0
"""After the end of the tree: pipes that somebody outside of it holds aren't waited for."""
LINGER_S = 30.0
"""After the outcome: an interpreter that doesn't manage to shut down is ended."""


def process_lost(why: str) -> CodefyError:
    return CodefyError(f"the run's process was lost: {why}; try again", code="run.process_lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """The supervisor's ends of one run's connections."""

    control: asyncio.StreamWriter
    events: asyncio.StreamReader
    stderr: asyncio.StreamReader
    stdout: asyncio.StreamReader | None = None
    transports: Sequence[asyncio.BaseTransport] = ()

    def close(self) -> None:
        self.control.close()
        for transport in self.transports:
            transport.close()


class RunHandle:
    """``RunProcess`` for every kind of tree."""

    def __init__(self, tree: Tree, streams: Streams, writes_for_s: float | None = None) -> None:
        """``writes_for_s``: as in ``Launch``."""
        self._tree = tree
        self._writes_for_s = writes_for_s
        self._streams = streams
        self._outlet = Outlet()
        self._tail = Tail()
        self._loop = asyncio.get_running_loop()
        self._asked = False
        self._overdue = False
        self._lets_write = False
        self._writing = False
        self._timer: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._end: asyncio.Future[Ending] = self._loop.create_future()
        self._events = EventPump(
            streams.events, self._outlet, self._outcome_is_there, self._outputs_are_written
        )
        self._task = self._loop.create_task(self._follow(), name=f"run {tree.pid}")

    @property
    def pid(self) -> int:
        return self._tree.pid

    async def ready(self) -> None:
        waiting = self._loop.create_task(self._events.ready.wait())
        await asyncio.wait((waiting, self._end), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._events.ready.is_set() and not self._end.done():
            return
        ending = await self.ended()
        raise process_lost(" / ".join(ending.stderr_tail) or _how(ending))

    async def go(self, go: Go) -> None:
        line = json.dumps({"go": go.model_dump(mode="json")}, separators=(",", ":")).encode()
        with suppress(ConnectionError):
            self._streams.control.write(line + b"\n")
            await self._streams.control.drain()

    async def lines(self) -> AsyncIterator[bytes]:
        while (line := await self._outlet.take()) is not None:
            yield line

    async def stop(self, grace_s: float, *, lets_write: bool = False) -> None:
        if self._end.done():
            return
        self._lets_write = lets_write
        if not self._asked:
            self._asked = True
            with suppress(ConnectionError, RuntimeError):
                self._streams.control.write(b'{"stop":true}\n')
        if self._writing and lets_write:
            return
        deadline = self._loop.time() + grace_s
        if self._timer is None or deadline < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._grace_over)

    async def kill(self) -> None:
        self._tree.kill()

    async def ended(self) -> Ending:
        return await asyncio.shield(self._end)

    def _grace_over(self) -> None:
        self._overdue = self._events.outcome is None
        self._tree.kill()

    def _outcome_is_there(self) -> None:
        self._writing = self._writes_for_s is not None
        if self._writing and self._lets_write and self._timer is not None:
            self._timer.cancel()
        self._end_within(LINGER_S if self._writes_for_s is None else self._writes_for_s)

    def _outputs_are_written(self) -> None:
        self._writing = False
        self._end_within(LINGER_S)

    def _end_within(self, seconds: float) -> None:
        if self._linger is not None:
            self._linger.cancel()
        if not self._end.done():
            self._linger = self._loop.call_later(seconds, self._tree.kill)

    async def _follow(self) -> None:
        """From the start to the ending, whoever listens."""
        pumps = [self._loop.create_task(work) for work in self._pumping()]
        end = await self._tree.gone()
        for timer in (self._timer, self._linger):
            if timer is not None:
                timer.cancel()
        self._outlet.lift()
        _, late = await asyncio.wait(pumps, timeout=DRAIN_S)
        for pump in late:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        if self._events.outcome is not None:
            await self._outlet.put(self._events.outcome)
        self._outlet.close()
        self._streams.close()
        self._end.set_result(self._ending(end))

    def _pumping(self) -> list[Coroutine[None, None, None]]:
        pumps = [self._events.run(), TextPump(self._streams.stderr, "stderr", self._outlet, self._tail).run()]
        if self._streams.stdout is not None:
            pumps.append(TextPump(self._streams.stdout, "stdout", self._outlet, None).run())
        return pumps

    def _ending(self, end: TreeEnd) -> Ending:
        return Ending(
            exit_code=end.exit_code,
            signal=end.signal,
            out_of_memory=end.out_of_memory,
            peak_memory_bytes=end.peak_memory_bytes,
            stderr_tail=self._tail.lines(),
            stopped_in_time=not (self._overdue and end.exit_code != 0),
        )


def _how(ending: Ending) -> str:
    number = -ending.signal if ending.signal is not None else ending.exit_code
    return f"it exited with code {number} before it could start"
