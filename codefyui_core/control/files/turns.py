"""One at a time for a file: a repetition may come while the first try still runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar


class Ordered(Protocol):
    """A key that has its place among others."""

    def __lt__(self, other: Any) -> bool: ...


K = TypeVar("K", bound=Ordered)


@dataclass(slots=True)
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    n_there: int = 0
    """Who has it and who waits for it."""


class Turns(Generic[K]):
    """Kept for as long as somebody has one or waits for it."""

    def __init__(self) -> None:
        self._turns: dict[K, _Turn] = {}

    @asynccontextmanager
    async def of(self, *keys: K) -> AsyncIterator[None]:
        """All of these, which are different ones. Everybody takes them in one order, so that no two wait for each other."""
        turns = [(key, self._turns.setdefault(key, _Turn())) for key in sorted(keys)]
        for _, turn in turns:
            turn.n_there += 1
        n_held = 0
        try:
            for _, turn in turns:
                await turn.lock.acquire()
                n_held += 1
            yield
        finally:
            for _, turn in turns[:n_held]:
                turn.lock.release()
            for key, turn in turns:
                turn.n_there -= 1
                if not turn.n_there:
                    del self._turns[key]
