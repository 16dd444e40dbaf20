"""Tells the storage backend of an attempt that nothing more will come from it."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field

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
LET_GO_S = 60.0
"""How long a run that is removed waits for a backend that doesn't answer."""


@dataclass(slots=True)
class _Telling:
    """A backend is being told; ``gone``: the run is about to be removed."""

    gone: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


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
        self._telling: dict[str, _Telling] = {}

    def tell(self, record: RunRecord) -> None:
        """In the background. Before the board forgets the run: what was asked for is in it."""
        given = assignment(self._board, self._storages, record)
        if given is not None and record.now.backend is not None:
            store = self._storages.stores[record.now.backend]
            telling = self._telling[record.id] = _Telling()
            self._tasks.start(self._tell(store, given, telling), name=f"settled {record.id}")

    async def let_go(self, run_id: str) -> None:
        """The run is about to be removed: its backend is told of that instead, once it isn't at this any more."""
        telling = self._telling.get(run_id)
        if telling is not None:
            telling.gone.set()
            with suppress(TimeoutError):
                await asyncio.wait_for(telling.over.wait(), LET_GO_S)

    async def _tell(self, store: StorageControl, given: Assignment, telling: _Telling) -> None:
        try:
            await self._try(store, given, telling)
        finally:
            telling.over.set()
            if self._telling.get(given.run.id) is telling:
                del self._telling[given.run.id]

    async def _try(self, store: StorageControl, given: Assignment, telling: _Telling) -> None:
        until = self._clock.monotonic() + self._window_s
        while not telling.gone.is_set():
            try:
                await store.settled(given)
            except Busy as error:
                if self._clock.monotonic() < until:
                    await self._pause(error.retry_after_s or RETRY_S, telling.gone)
                    continue
                self._log.warning(
                    "run %s: what came in half stays until it is removed: %s", given.run.id, error
                )
            except StorageProblem as error:
                self._log.warning("run %s: what came in half stays: %s", given.run.id, error)
            return

    async def _pause(self, seconds: float, gone: asyncio.Event) -> None:
        waits = {asyncio.ensure_future(self._clock.delay(seconds)), asyncio.ensure_future(gone.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
