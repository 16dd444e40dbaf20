"""Work that mustn't stop half-way: whoever asked for it may be cancelled, it is carried through."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Unbroken:
    """Its tasks, until they are done."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, T], *, name: str) -> T:
        """What comes of it. Raises: what it raises; logged when the caller is gone."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._ended_alone)
            raise

    async def wait(self, within_s: float) -> None:
        """For those that are under way."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=within_s)

    def _ended_alone(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.warning("%s failed: %s", task.get_name(), error)
