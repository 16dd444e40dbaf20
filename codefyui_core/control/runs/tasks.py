"""Background tasks with an owner: none is lost, none fails unheard."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

CANCEL_S = 5.0
"""For a cancelled task to let go of what it holds."""


class Tasks:
    """Starts tasks, logs what they raise, ends them all at once."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._log.error("task %s failed", task.get_name(), exc_info=task.exception())

    async def wait(self) -> None:
        """Until all that are running now, and all that they start, have ended."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def aclose(self) -> None:
        """Cancel what is left and wait for it."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=CANCEL_S)
            for task in left:
                self._log.error("task %s doesn't end; it is left behind", task.get_name())
