"""Who wants to know when a worker's row reads differently."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from codefyui_core.plugin.values import JsonObject

GATHER_S = 0.1
"""Changes within this time are one: at most ten a second for a row."""


class Feed:
    """Subscribers hold only the ids that changed, so a slow one costs nothing."""

    def __init__(self) -> None:
        self._subscribers: list[tuple[set[str], asyncio.Event]] = []

    def changed(self, worker_id: str) -> None:
        for ids, wake in self._subscribers:
            ids.add(worker_id)
            wake.set()

    async def rows(self, read: Callable[[], Awaitable[Sequence[JsonObject]]]) -> AsyncIterator[JsonObject]:
        """All rows first, then each that changed; one that is gone as ``{id, removed: true}``."""
        ids: set[str] = set()
        wake = asyncio.Event()
        subscriber = (ids, wake)
        self._subscribers.append(subscriber)
        try:
            for row in await read():
                yield row
            while True:
                await wake.wait()
                await asyncio.sleep(GATHER_S)
                wake.clear()
                wanted = set(ids)
                ids.clear()
                for row in await read():
                    if row["id"] in wanted:
                        wanted.discard(str(row["id"]))
                        yield row
                for gone in sorted(wanted):
                    yield {"id": gone, "removed": True}
        finally:
            self._subscribers = [one for one in self._subscribers if one is not subscriber]
