"""Attempts on workers as their storage backends know them: from memory while they run, from the database afterwards."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from codefyui_core.control.db.tables import attempts, runs
from codefyui_core.ids import RunId, WorkerId
from codefyui_core.plugin.storage import AnyBackend, Assignment, StorageControl
from codefyui_core.plugin.views import AttemptView, RunStatus, RunView
from codefyui_core.runs.record import RunRecord

from .board import FILES, NO_FILES, Board
from .dispatcher import run_view
from .offers import Storages


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """An attempt, and the backend that serves it."""

    given: Assignment
    backend: AnyBackend
    store: StorageControl

    @property
    def key(self) -> tuple[str, int]:
        return self.given.run.id, self.given.attempt.number


def served(board: Board, storages: Storages, record: RunRecord) -> Served | None:
    """A placed run that isn't over. None: it has no backend, or that is off."""
    now, request = record.now, board.requests.get(record.id)
    if now.backend is None or now.ticket is None or now.worker_id is None or request is None:
        return None
    run = run_view(request, record.status, now.worker_id)
    return _served(storages, now.backend, now.ticket, run, now.number, now.worker_id, now.instance)


async def served_before(
    connection: AsyncConnection, storages: Storages, run_id: str, number: int
) -> Served | None:
    """Any attempt, also of a run that is over. None: it is gone, or its backend is off."""
    columns = (runs.c.name, runs.c.status, runs.c.files)
    own = (attempts.c.backend, attempts.c.ticket, attempts.c.worker_id, attempts.c.instance)
    found = select(*columns, *own).join(attempts, attempts.c.run_id == runs.c.id)
    where = (runs.c.id == run_id, attempts.c.number == number)
    row = (await connection.execute(found.where(*where))).one_or_none()
    if row is None or row.ticket is None or row.worker_id is None:
        return None
    run = RunView(
        id=RunId(run_id),
        name=row.name,
        status=RunStatus(row.status),
        files=NO_FILES if row.files is None else FILES.validate_python(row.files),
        worker_id=WorkerId(row.worker_id),
    )
    return _served(storages, row.backend, row.ticket, run, number, row.worker_id, row.instance)


def _served(
    storages: Storages, name: str, ticket: Any, run: RunView, number: int, worker_id: str, instance: str
) -> Served | None:
    backend, store = storages.backends.get(name), storages.stores.get(name)
    if backend is None or store is None:
        return None
    attempt = AttemptView(run_id=run.id, number=number, worker_id=WorkerId(worker_id), instance=instance)
    given = Assignment(run=run, attempt=attempt, ticket=backend.ticket.model_validate(ticket))
    return Served(given=given, backend=backend, store=store)
