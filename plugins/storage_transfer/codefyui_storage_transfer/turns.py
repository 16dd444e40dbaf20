"""How many uploads of one worker are taken in at once: a worker with much to send leaves room for everybody else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

AT_ONCE = 4


@dataclass(slots=True)
class _Line:
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    n_there: int = 0


class Turns:
    """A line for each worker. Who waits sends nothing meanwhile: its body isn't read."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    @asynccontextmanager
    async def of(self, worker: str) -> AsyncIterator[None]:
        line = self._lines.setdefault(worker, _Line())
        line.n_there += 1
        try:
            async with line.places:
                yield
        finally:
            line.n_there -= 1
            if not line.n_there:
                del self._lines[worker]
