"""One decision's part of a write transaction: read records, save changes with compare-and-swap."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import CursorResult, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql import ColumnElement

from codefyui_core.control.db.tables import artifacts, attempts, runs, storage_outbox, uploads
from codefyui_core.runs.events import ArtifactRow
from codefyui_core.runs.owed import LAST, Owed
from codefyui_core.runs.record import RunRecord
from codefyui_core.runs.status import ArtifactState
from codefyui_core.runs.steps import Change

from .rows import (
    EVENTS,
    METRICS,
    artifact_values,
    attempt_changes,
    event_row,
    metric_rows,
    record_of,
    records,
    run_changes,
)

_BACKENDS = ("kind", "name", "backend", "label", "relative_path", "size_bytes", "sha256", "state", "data")
"""Columns of an artifact that are its backend's to say."""


class Stale(Exception):
    """A run isn't as it was read: its position or cursor moved meanwhile."""


class Unit:
    """What a decision may do within its savepoint."""

    def __init__(self, connection: AsyncConnection, *, at_ms: int, epoch: int) -> None:
        self.connection = connection
        self.at_ms = at_ms
        self.epoch = epoch
        self.changes: list[Change] = []
        """What was saved, told to listeners after the commit."""
        self.deleted: list[str] = []
        self.weight = 0
        """Events saved."""

    async def load(self, run_id: str) -> RunRecord | None:
        """A run with its newest attempt."""
        row = (await self.connection.execute(records().where(runs.c.id == run_id))).one_or_none()
        return None if row is None else record_of(row)

    async def load_all(self, *conditions: ColumnElement[bool]) -> Sequence[RunRecord]:
        """Runs that meet the conditions, in order of submission."""
        rows = await self.connection.execute(records().where(*conditions).order_by(runs.c.queue_seq))
        return [record_of(row) for row in rows]

    async def save(self, change: Change) -> RunRecord:
        """Write what differs, with its events and their rows. Nothing is written when nothing does.

        Raises: Stale.
        """
        if change.empty:
            if change.effects:
                self.changes.append(change)
            return change.after
        await self._save_run(change)
        await self._save_attempt(change)
        await self._save_events(change)
        await self._save_owed(change)
        self.changes.append(change)
        self.weight += len(change.events)
        return change.after

    async def _save_run(self, change: Change) -> None:
        values = run_changes(change.before, change.after)
        if values:
            where = (runs.c.id == change.before.id, runs.c.last_cursor == change.before.last_cursor)
            await self._one(update(runs).where(*where).values(**values))

    async def _save_attempt(self, change: Change) -> None:
        before, after = change.before.attempt_now, change.after.attempt_now
        if after is None or after is before:
            return
        values = attempt_changes(before, after)
        if before is None or before.number != after.number:
            fixed = {"run_id": change.after.id, "server_epoch": self.epoch, "created_at": self.at_ms}
            await self.connection.execute(insert(attempts).values(**values, **fixed))
        elif values:
            where = (
                attempts.c.run_id == change.before.id,
                attempts.c.number == before.number,
                attempts.c.position == before.position,
            )
            await self._one(update(attempts).where(*where).values(**values))

    async def _one(self, statement: Any) -> None:
        result: CursorResult[Any] = await self.connection.execute(statement)
        if result.rowcount != 1:
            raise Stale(str(statement.table))

    async def _save_events(self, change: Change) -> None:
        if not change.events:
            return
        run_id = change.after.id
        await EVENTS.into(self.connection, [event_row(run_id, event) for event in change.events])
        times = {event.cursor: event.ts for event in change.events} if change.derived else {}
        metrics = [
            row
            for cursor, derived in change.derived
            for row in metric_rows(run_id, cursor, times[cursor], derived)
        ]
        await METRICS.into(self.connection, metrics)
        files = [
            artifact_values(run_id, cursor, times[cursor], row)
            for cursor, derived in change.derived
            for row in derived.artifacts
        ]
        if files:
            await self.connection.execute(insert(artifacts), files)

    async def _save_owed(self, change: Change) -> None:
        if change.owed:
            rows = [
                {"run_id": change.after.id, **one._asdict(), "call": one.call.value} for one in change.owed
            ]
            await self.connection.execute(insert(storage_outbox), rows)

    async def known_artifacts(self, run_id: str, ids: Collection[str]) -> frozenset[str]:
        """Those that are listed already."""
        if not ids:
            return frozenset()
        where = (artifacts.c.run_id == run_id, artifacts.c.artifact_id.in_(ids))
        return frozenset(await self.connection.scalars(select(artifacts.c.artifact_id).where(*where)))

    async def owes_end(self, run_id: str, attempt: int) -> bool:
        """An attempt is over, and its storage backend hasn't settled it yet."""
        row = storage_outbox.c
        where = (row.run_id == run_id, row.attempt == attempt, row.seq == LAST)
        return await self.connection.scalar(select(row.seq).where(*where)) is not None

    async def answered(self, run_id: str, one: Owed) -> bool:
        """A storage backend has answered. False: it had before, or the run is gone."""
        row = storage_outbox.c
        where = (row.run_id == run_id, row.attempt == one.attempt, row.seq == one.seq)
        result: CursorResult[Any] = await self.connection.execute(delete(storage_outbox).where(*where))
        return result.rowcount == 1

    async def add_artifact(self, run_id: str, row: ArtifactRow) -> None:
        """List a file of a run whose log is closed."""
        values = artifact_values(run_id, None, self.at_ms, row)
        await self.connection.execute(insert(artifacts).values(**values))

    async def place_artifact(self, run_id: str, row: ArtifactRow, was: ArtifactState) -> bool:
        """Take over what a storage backend says of a listed file. False: it isn't in that state any more."""
        values = {name: getattr(row, name) for name in _BACKENDS}
        where = (artifacts.c.artifact_id == row.artifact_id, artifacts.c.state == was.value)
        statement = update(artifacts).where(artifacts.c.run_id == run_id, *where).values(**values)
        result: CursorResult[Any] = await self.connection.execute(statement)
        return result.rowcount == 1

    async def delete_artifact(self, run_id: str, artifact_id: str) -> None:
        """Remove the row of one artifact, and of its upload. Its event stays."""
        for table, key in ((artifacts, artifacts.c.artifact_id), (uploads, uploads.c.item_id)):
            await self.connection.execute(delete(table).where(table.c.run_id == run_id, key == artifact_id))

    async def delete(self, run_id: str) -> None:
        """Remove a run and all its rows."""
        await self.connection.execute(delete(runs).where(runs.c.id == run_id))
        self.deleted.append(run_id)
