"""Threads for calls that wait for the network."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from codefyui_core.plugin import Busy

P = ParamSpec("P")
R = TypeVar("R")


async def each(works: Iterable[Coroutine[Any, Any, None]], at_once: int) -> None:
    """All of them, a few beside each other. Raises what the first of those that failed raised, when all are over; none
    begins once one of them was Busy, as thousands would wait for a store that is away, one after another.
    """
    room, away = asyncio.Semaphore(at_once), asyncio.Event()

    async def one(work: Coroutine[Any, Any, None]) -> None:
        try:
            async with room:
                if not away.is_set():
                    await work
        except Busy:
            away.set()
            raise
        finally:
            work.close()

    outcomes = await asyncio.gather(*(one(work) for work in works), return_exceptions=True)
    for outcome in outcomes:
        if outcome is not None:
            raise outcome


class Threads:
    """A pool of their own: the plane's shared one syncs files to the disk, and a bucket that doesn't answer must not
    hold that up.
    """

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(max_workers=count, thread_name_prefix=name)

    async def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(work, *args, **kwargs))

    def close(self) -> None:
        """What runs goes on until its socket times out; nobody waits for it."""
        self._pool.shutdown(wait=False, cancel_futures=True)
