"""What goes on for attempts now: a task each, and who carries it out."""

import asyncio
from collections.abc import Collection, Coroutine

from .equipment import Life


class Lives:
    """By the attempt's key."""

    def __init__(self) -> None:
        self._drivers: dict[tuple[str, int], Life] = {}
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}

    def begin(self, key: tuple[str, int], life: Coroutine[None, None, None], name: str) -> None:
        """Goes on until ``drive`` has ended, or ``end`` is called."""
        self._tasks[key] = asyncio.create_task(life, name=name)

    def take(self, key: tuple[str, int], driver: Life) -> None:
        """It is asked from now on."""
        self._drivers[key] = driver

    async def drive(self, key: tuple[str, int], driver: Life) -> None:
        self.take(key, driver)
        try:
            await driver.life()
        finally:
            self._drivers.pop(key, None)
            self.end(key)

    def end(self, key: tuple[str, int]) -> None:
        self._tasks.pop(key, None)

    def driver(self, key: tuple[str, int]) -> Life | None:
        return self._drivers.get(key)

    @property
    def drivers(self) -> Collection[Life]:
        return self._drivers.values()

    def __contains__(self, key: tuple[str, int]) -> bool:
        return key in self._tasks

    async def over(self, key: tuple[str, int]) -> None:
        """Until it is, unless it is the one that asks."""
        task = self._tasks.get(key)
        if task is not None and task is not asyncio.current_task():
            await asyncio.gather(task, return_exceptions=True)

    async def idle(self) -> None:
        """Until there is none any more. Who waits no longer ends none of them."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    async def aclose(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
