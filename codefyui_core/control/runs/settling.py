"""Tells the storage backend of an attempt that nothing more will come from it."""

import logging

from codefyui_core.clocks import AttentiveClock
from codefyui_core.errors import Busy, StorageProblem
from codefyui_core.plugin.storage import Assignment, StorageControl
from codefyui_core.runs.record import RunRecord

from .board import Board
from .grants import assignment
from .offers import Storages
from .tasks import Tasks

RETRY_S = 30.0
"""Between two tries with a busy backend."""


class Settling:
    """``window_s``: how long a busy backend is asked again."""

    def __init__(
        self,
        *,
        board: Board,
        storages: Storages,
        tasks: Tasks,
        clock: AttentiveClock,
        log: logging.Logger,
        window_s: float,
    ) -> None:
        self._board = board
        self._storages = storages
        self._tasks = tasks
        self._clock = clock
        self._log = log
        self._window_s = window_s

    def tell(self, record: RunRecord) -> None:
        """In the background. Before the board forgets the run: what was asked for is in it."""
        given = assignment(self._board, self._storages, record)
        if given is not None and record.now.backend is not None:
            store = self._storages.stores[record.now.backend]
            self._tasks.start(self._tell(store, given), name=f"settled {record.id}")

    async def _tell(self, store: StorageControl, given: Assignment) -> None:
        until = self._clock.monotonic() + self._window_s
        while True:
            try:
                await store.settled(given)
            except Busy as error:
                if self._clock.monotonic() < until:
                    await self._clock.delay(error.retry_after_s or RETRY_S)
                    continue
                self._log.warning(
                    "run %s: what came in half stays until it is removed: %s", given.run.id, error
                )
            except StorageProblem as error:
                self._log.warning("run %s: what came in half stays: %s", given.run.id, error)
            return
