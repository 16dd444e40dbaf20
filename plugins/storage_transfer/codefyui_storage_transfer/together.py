"""What waits goes together: many small files cost few requests."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True)
class _Waiting(Generic[T, R]):
    item: T
    n_bytes: int
    answer: "asyncio.Future[R]"


class Together(Generic[T, R]):
    """While a load is under way, what is asked for gathers; the next load takes all of it, up to ``most_bytes()`` and
    ``most_items``. Up to ``at_once`` are under way, but another one beside others only once it is half full: else
    one that comes alone just before many cost them a place. Nothing waits for more to come than loads under way.

    ``carry`` answers for each item of its load in order, by a result or an error; what it raises, all of them get.
    """

    def __init__(
        self,
        carry: Callable[[Sequence[T]], Awaitable[Sequence[R | Exception]]],
        *,
        at_once: int,
        most_items: int,
        most_bytes: Callable[[], int],
    ) -> None:
        self._carry = carry
        self._at_once = at_once
        self._most_items = most_items
        self._most_bytes = most_bytes
        self._waiting: list[_Waiting[T, R]] = []
        self._n_bytes = 0
        """Of those that wait."""
        self._under_way: set[asyncio.Task[None]] = set()

    async def one(self, item: T, n_bytes: int) -> R:
        """What came of it. A caller that is cancelled leaves its load to the others in it; one that nobody waits for
        any more is cancelled.
        """
        waiting: _Waiting[T, R] = _Waiting(item, n_bytes, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._n_bytes += n_bytes
        self._go_on()
        return await waiting.answer

    async def aclose(self) -> None:
        """Ends what is under way."""
        for one in self._waiting:
            one.answer.cancel()
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _go_on(self) -> None:
        while self._may_go() and (load := self._next_load()):
            task = asyncio.create_task(self._bring(load))
            self._under_way.add(task)
            task.add_done_callback(self._over)
            for one in load:
                one.answer.add_done_callback(partial(_let_go, task, load))

    def _may_go(self) -> bool:
        if not self._under_way:
            return True
        if len(self._under_way) >= self._at_once:
            return False
        return len(self._waiting) * 2 >= self._most_items or self._n_bytes * 2 >= self._most_bytes()

    def _over(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        self._go_on()

    def _next_load(self) -> list[_Waiting[T, R]]:
        load: list[_Waiting[T, R]] = []
        n_bytes = 0
        while self._waiting and len(load) < self._most_items:
            one = self._waiting[0]
            if load and n_bytes + one.n_bytes > self._most_bytes():
                break
            del self._waiting[0]
            self._n_bytes -= one.n_bytes
            if not one.answer.done():
                load.append(one)
                n_bytes += one.n_bytes
        return load

    async def _bring(self, load: Sequence[_Waiting[T, R]]) -> None:
        try:
            answers = await self._carry([one.item for one in load])
        except asyncio.CancelledError:
            for one in load:
                one.answer.cancel()
            raise
        except Exception as error:
            answers = [error] * len(load)
        for one, answer in zip(load, answers, strict=True):
            if one.answer.done():
                continue
            if isinstance(answer, Exception):
                one.answer.set_exception(answer)
            else:
                one.answer.set_result(answer)


def _let_go(task: "asyncio.Task[None]", load: Sequence[_Waiting[T, R]], _answer: "asyncio.Future[R]") -> None:
    if all(one.answer.cancelled() for one in load):
        task.cancel()
