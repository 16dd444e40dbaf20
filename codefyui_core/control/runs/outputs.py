"""Recorded outputs, wherever they are kept: a run's own machine. The server has those of its own runs alone, and asks
the worker for all others; nothing of theirs is stored here.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from sqlalchemy import select

from codefyui_core.control.db.database import Database
from codefyui_core.control.db.tables import runs
from codefyui_core.errors import CodefyError
from codefyui_core.outputs import Answer, OutputStore, Question, What, answer
from codefyui_core.outputs.values import is_empty, json_of
from codefyui_core.plugin.values import JsonObject
from codefyui_core.runs.status import ACTIVE

AT_ONCE = 2
"""Reads that compute in this process at the same time."""


class WorkerReads(Protocol):
    """Asks one connected worker."""

    async def ask(self, run_id: str, question: Question, timeout_s: float) -> Answer: ...
    def tell(self, run_id: str, question: Question) -> None: ...


def away(worker: str) -> CodefyError:
    """The worker that keeps them isn't connected."""
    return CodefyError(
        f"The recorded outputs are on worker {worker}, which isn't connected. They can be read again once it is.",
        code="outputs.away",
    )


class RecordedOutputs:
    """Reads and removes them."""

    def __init__(
        self,
        *,
        db: Database,
        store: OutputStore,
        worker: Callable[[str], WorkerReads | None],
        timeout_s: float,
        log: logging.Logger,
    ) -> None:
        """``worker``: by its id; None while it isn't connected."""
        self.store = store
        self._db = db
        self._worker = worker
        self._timeout_s = timeout_s
        self._log = log
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def read(self, run_id: str, question: Question) -> bytes | None:
        """JSON for a client; None: there is nothing to show.

        Raises: CodefyError ``run.not_found``, ``run.active``, ``outputs.*``, ``request.invalid``; Corrupt.
        """
        found = await self._ask(await self._row(run_id), question)
        if is_empty(found):
            return None
        around: JsonObject = {"run_id": run_id}
        if question.node:
            around["node_id"] = question.node
        if question.port:
            around["port"] = question.port
        async with self._turn:
            return await asyncio.to_thread(json_of, found, around)

    async def remove(self, run_id: str) -> bool:
        """False when there were none. Raises: as ``read``."""
        found = await self._ask(await self._row(run_id), Question(what=What.REMOVE))
        return bool(found.head.get("removed"))

    async def forget(self, run_id: str) -> None:
        """The run is about to be removed: its outputs go too, on a worker if it is connected; else its own bound
        lets them go in time. Never raises.
        """
        try:
            row = await self._row(run_id)
            if row.worker_id is None:
                await asyncio.to_thread(self.store.remove, run_id)
            elif (worker := self._worker(row.worker_id)) is not None:
                worker.tell(run_id, Question(what=What.REMOVE))
        except CodefyError:
            return  # none were recorded
        except Exception:
            self._log.exception("recorded outputs of run %s can't be removed", run_id)

    async def _ask(self, row: Any, question: Question) -> Answer:
        if row.worker_id is None:
            async with self._turn:
                return await asyncio.to_thread(answer, self.store, row.id, question)
        worker = self._worker(row.worker_id)
        if worker is None:
            raise away(row.worker_name)
        return await worker.ask(row.id, question, self._timeout_s)

    async def _row(self, run_id: str) -> Any:
        """Where the outputs of a run that is over are."""
        columns = (runs.c.id, runs.c.status, runs.c.options, runs.c.worker_id, runs.c.worker_name)
        async with self._db.read() as connection:
            row = (await connection.execute(select(*columns).where(runs.c.id == run_id))).one_or_none()
        if row is None:
            raise CodefyError(f"There is no run {run_id}.", code="run.not_found")
        if not row.options.get("record_outputs"):
            raise CodefyError(
                f"Run {run_id} recorded no outputs. Run it again with record_outputs to see them.",
                code="outputs.not_found",
            )
        if row.status in ACTIVE:
            raise CodefyError(
                f"Run {run_id} is {row.status}: what it records can be read once it is over.",
                code="run.active",
            )
        return row
