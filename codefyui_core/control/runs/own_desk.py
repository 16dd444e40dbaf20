"""The server's own runs between the queue and their execution: begun when they are placed, stopped when asked."""

import logging
from collections.abc import Awaitable, Callable

from codefyui_core.errors import CodefyError
from codefyui_core.runs.record import RunRecord

from .board import Board
from .decisions import abandon
from .dispatcher import Placed
from .local import Execution, OwnRun, OwnRuns
from .tasks import Tasks
from .worker_desk import STOP_GRACE_S
from .writer import Writer


class OwnDesk:
    """What ``WorkerDesk`` is to workers."""

    def __init__(self, *, board: Board, own: OwnRuns, tasks: Tasks) -> None:
        self._board = board
        self._own = own
        self._tasks = tasks

    def begin(self, placed: Placed) -> None:
        """A run whose attempt is committed."""
        request = self._board.requests.get(placed.record.id)
        options = {} if request is None else request.options.model_dump(mode="json", exclude={"target"})
        run = OwnRun(
            run_id=placed.record.id,
            attempt=placed.record.attempt,
            document=placed.document,
            options=options,
            devices=placed.record.now.devices,
        )
        execution = self._own.begin(run)
        self._tasks.start(self._execute(execution, run.run_id), name=f"run {run.run_id}")
        current = self._board.flights.get(run.run_id)
        if current is not None and current.stop_reason is not None:
            self.stop(current)

    def stop(self, record: RunRecord) -> None:
        """Somebody asked for it. A run that doesn't execute here yet is stopped when it begins."""
        execution = self._own.get(record.id)
        if execution is not None and record.stop_reason is not None:
            stop = execution.stop(record.stop_reason, STOP_GRACE_S)
            self._tasks.start(stop, name=f"stop {record.id}")

    async def _execute(self, execution: Execution, run_id: str) -> None:
        try:
            await execution.run()
        finally:
            self._own.forget(run_id)


def abandoning(writer: Writer, log: logging.Logger) -> Callable[[str, str], Awaitable[None]]:
    """Ends a run whose execution failed on the server's side, by its id and the error."""

    async def abandoned(run_id: str, error: str) -> None:
        try:
            await writer.run(abandon(run_id, error))
        except CodefyError:
            log.critical("run %s can't be ended; the next start will", run_id)

    return abandoned
