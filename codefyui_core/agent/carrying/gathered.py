"""What waits while a thread is at work goes into its next turn, together: a blocking step that each of many small files
takes costs few threads and few syncs.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Generic, TypeVar

SMALL_BYTES = 1 << 20
"""A file up to this size holds up no others in its turn."""
THREADS = 8
"""Disks take several syncs at once for little more than the price of one."""
T = TypeVar("T")
R = TypeVar("R")


class Gathered(Generic[T, R]):
    """``work`` blocks. It answers for each of its items in order, by a result or an error; what it raises, all of them
    get.
    """

    def __init__(self, work: Callable[[Sequence[T]], Sequence[R | Exception]]) -> None:
        self._work = work
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._working: asyncio.Task[None] | None = None

    async def one(self, item: T) -> R:
        """What came of it. It is done even when the caller leaves."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._working is None:
            self._working = asyncio.create_task(self._work_all())
        return await answer

    async def sized(self, item: T, n_bytes: int) -> R:
        """The same for one whose work grows with its size: a large one has a turn of its own, beside the others."""
        if n_bytes <= SMALL_BYTES:
            return await self.one(item)
        (answer,) = await asyncio.to_thread(self._work, (item,))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def aclose(self) -> None:
        """Until nothing is under way."""
        while self._working is not None:
            await asyncio.wait({self._working})

    async def _work_all(self) -> None:
        together: list[tuple[T, asyncio.Future[R]]] = []
        try:
            while self._waiting:
                together, self._waiting = self._waiting, []
                for (_, answer), found in zip(together, await self._tried(together), strict=True):
                    _give(answer, found)
        finally:
            self._working = None
            for _, answer in (*together, *self._waiting):
                answer.cancel()

    async def _tried(self, together: Sequence[tuple[T, "asyncio.Future[R]"]]) -> Sequence[R | Exception]:
        try:
            return await asyncio.to_thread(self._work, [item for item, _ in together])
        except Exception as error:
            return [error] * len(together)


def _give(answer: "asyncio.Future[R]", found: R | Exception) -> None:
    if answer.done():
        return  # whoever asked has left
    if isinstance(found, Exception):
        answer.set_exception(found)
    else:
        answer.set_result(found)


def each(work: Callable[[T], R], items: Iterable[T]) -> list[R | Exception]:
    """What came of each, one after the other. Blocking."""
    return [_tried(work, item) for item in items]


def at_once(work: Callable[[T], R], items: Sequence[T]) -> list[R | Exception]:
    """What came of each, by several threads. Blocking."""
    if len(items) < 2:
        return each(work, items)
    count = min(THREADS, len(items))
    with ThreadPoolExecutor(count) as pool:
        answers = list(pool.map(partial(each, work), [items[first::count] for first in range(count)]))
    return [answers[number % count][number // count] for number in range(len(items))]


def _tried(work: Callable[[T], R], item: T) -> R | Exception:
    try:
        return work(item)
    except Exception as error:
        return error
