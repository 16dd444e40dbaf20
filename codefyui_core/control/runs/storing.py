"""What storage backends ask of runs: which attempt holds one, and to list what was stored for it."""

from collections.abc import Sequence

from sqlalchemy import select

from codefyui_core.control.db.database import Database
from codefyui_core.control.db.tables import artifacts
from codefyui_core.errors import CodefyError
from codefyui_core.ids import ArtifactId, RunId, WorkerId
from codefyui_core.plugin.storage import StoredObject
from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import AttemptView
from codefyui_core.runs.events import ArtifactRow, Derived, EventType, artifact_key
from codefyui_core.runs.status import ArtifactState
from codefyui_core.runs.steps import Draft

from .board import Board
from .calls import stored_row
from .decisions import EXECUTING
from .fold import lease_fits
from .removal import stored_object
from .unit import Unit
from .writer import Writer


class Storing:
    """Behind ``ControlStoreHost``."""

    def __init__(self, *, db: Database, board: Board, writer: Writer) -> None:
        self._db = db
        self._board = board
        self._writer = writer

    def attempt_of(self, run_id: str) -> AttemptView | None:
        """The attempt on a worker that holds a run now."""
        record = self._board.flights.get(run_id)
        if record is None or record.state not in EXECUTING or record.now.worker_id is None:
            return None
        now = record.now
        return AttemptView(
            run_id=RunId(run_id),
            number=now.number,
            worker_id=WorkerId(now.worker_id or ""),
            instance=now.instance,
        )

    def lease_fits(self, run_id: str, lease: str) -> bool:
        """Is it the lease of the attempt that holds the run now?"""
        record = self._board.flights.get(run_id)
        return record is not None and lease_fits(record.now.lease_hash, lease)

    async def record(self, attempt: AttemptView, stored: StoredObject, backend: str) -> ArtifactId:
        """One ``artifact`` event and its row, unless the key is listed. Once the attempt is over, and until its backend
        has settled it, the log is closed: there is a row alone then, and one that was left on the worker is stored.

        Raises: CodefyError ``run.attempt_over``.
        """
        row = stored_row(stored, backend)

        async def decide(unit: Unit) -> ArtifactId:
            record = await unit.load(attempt.run_id)
            if record is None or record.attempt != attempt.number or record.state not in EXECUTING:
                await _add_late(unit, attempt, row)
            elif not await unit.known_artifacts(record.id, {row.artifact_id}):
                draft = Draft(before=record, at_ms=unit.at_ms)
                draft.append(EventType.ARTIFACT, _payload(row), Derived(artifacts=(row,)))
                await unit.save(draft.done())
            return ArtifactId(row.artifact_id)

        return await self._writer.run(decide)

    async def stored(self, run_id: str, backend: str) -> Sequence[StoredObject]:
        """What is listed for a run by one backend."""
        where = (artifacts.c.run_id == run_id, artifacts.c.backend == backend)
        async with self._db.read() as connection:
            rows = await connection.execute(select(artifacts).where(*where).order_by(artifacts.c.cursor))
            return [stored_object(row) for row in rows]


async def _add_late(unit: Unit, attempt: AttemptView, row: ArtifactRow) -> None:
    """Raises: CodefyError ``run.attempt_over``."""
    if not await unit.owes_end(attempt.run_id, attempt.number):
        raise CodefyError(
            f"Attempt {attempt.number} of run {attempt.run_id} is over.", code="run.attempt_over"
        )
    if not await unit.known_artifacts(attempt.run_id, {row.artifact_id}):
        await unit.add_artifact(attempt.run_id, row)
    else:
        await unit.place_artifact(attempt.run_id, row, ArtifactState.ON_WORKER)


def _payload(row: ArtifactRow) -> JsonObject:
    """What the public event says: all but what is for the backend alone."""
    return {
        "artifact_id": artifact_key(row.artifact_id),
        "kind": row.kind,
        "name": row.name,
        "path": row.path,
        "relative_path": row.relative_path,
        "size_bytes": row.size_bytes,
        "backend": row.backend,
        "node_id": row.node_id,
        "meta": row.meta,
    }
