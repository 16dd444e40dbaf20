"""A clock that a test moves by hand."""

import asyncio
import heapq
from datetime import UTC, datetime, timedelta
from itertools import count

START = datetime(2026, 1, 1, tzinfo=UTC)
TURNS = 20
"""Turns of the event loop after each step, so that what a sleeper woke for is done."""


class ManualClock:
    """Time stands still until ``advance`` or ``jump`` moves it. Starts at 2026-01-01 00:00 UTC."""

    def __init__(self) -> None:
        self._elapsed_s = 0.0
        self._wall = START
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()

    def monotonic(self) -> float:
        return self._elapsed_s

    def now(self) -> datetime:
        return self._wall

    async def sleep(self, seconds: float) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed_s + seconds, next(self._order), done))
        await done

    async def advance(self, seconds: float) -> None:
        """Let time pass, waking every sleeper at its moment."""
        end = self._elapsed_s + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            moment, _, done = heapq.heappop(self._sleepers)
            self._move(moment)
            if not done.done():
                done.set_result(None)
                await self.settle()
        self._move(end)
        await self.settle()

    def wakes_within(self, seconds: float) -> bool:
        """Whether somebody sleeps who would wake if so much time passed."""
        end = self._elapsed_s + seconds
        return any(moment <= end and not done.done() for moment, _, done in self._sleepers)

    def jump(self, seconds: float) -> None:
        """Let time pass without anybody noticing: the machine slept. Sleepers wake at the next ``advance``."""
        self._move(self._elapsed_s + seconds)

    def set_wall(self, seconds: float) -> None:
        """Somebody sets the wall clock forward (or back) by ``seconds``."""
        self._wall += timedelta(seconds=seconds)

    async def settle(self) -> None:
        """Let tasks that are ready run."""
        for _ in range(TURNS):
            await asyncio.sleep(0)

    def _move(self, moment: float) -> None:
        if moment > self._elapsed_s:
            self._wall += timedelta(seconds=moment - self._elapsed_s)
            self._elapsed_s = moment
