"""Removing ended runs with their files, and single artifacts of them: on request, and by retention."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from sqlalchemy import Row, select

from codefyui_core.control.db.database import Database
from codefyui_core.control.db.tables import artifacts, attempts, runs
from codefyui_core.errors import CodefyError
from codefyui_core.ids import RunId, Sha256, WorkerId
from codefyui_core.plugin.storage import Discard, DiscardReason, StorageControl, StoredObject
from codefyui_core.plugin.views import FileRole, RunStatus, RunView
from codefyui_core.runs.status import ACTIVE, FINAL, ArtifactState, Cause

from .board import FILES
from .unit import Unit
from .writer import Writer

KEPT = frozenset({Cause.SHUTDOWN, Cause.LEASE_LOST})
"""Causes of endings whose checkpoints retention keeps: they are what a person goes on from."""


async def nothing_to_forget(_run_id: str) -> None:
    """For those that keep nothing of a run elsewhere."""


class Removal:
    """Runs leave with what is theirs alone; a file that can't be removed is a warning."""

    def __init__(
        self,
        *,
        db: Database,
        writer: Writer,
        stores: Mapping[str, StorageControl],
        log: logging.Logger,
        keep_last: int,
        ask_now: Callable[[str], Awaitable[None]],
        forget: Sequence[Callable[[str], Awaitable[None]]],
    ) -> None:
        """``ask_now`` asks the backends once more about files of a run that read ``arriving``. ``forget`` lets what
        the core itself keeps of a run go: recorded outputs, files that came in half.
        """
        self._ask_now = ask_now
        self._forget = forget
        self._db = db
        self._writer = writer
        self._stores = stores
        self._log = log
        self._keep_last = keep_last

    async def delete(self, run_id: str) -> str | None:
        """Remove one ended run. The answer warns of files that stayed.

        Raises: CodefyError ``run.not_found``, ``run.active``.
        """
        await self._ended(run_id)
        return await self._remove(run_id, DiscardReason.DELETE)

    async def delete_artifact(self, run_id: str, artifact_id: str) -> str | None:
        """Remove one artifact of an ended run, whatever its kind. The answer warns of a file that stayed.

        Raises: CodefyError ``run.not_found``, ``run.active``, ``artifact.not_found``.
        """
        run = await self._ended(run_id)
        row = await self._artifact(run_id, artifact_id)
        if row.state == ArtifactState.ARRIVING:
            await self._ask_now(run_id)
            row = await self._artifact(run_id, artifact_id)
        if row.state == ArtifactState.STORED:
            warning = await self._discard_of(row.backend, run, [stored_object(row)], DiscardReason.ARTIFACT)
        elif row.state == ArtifactState.ARRIVING:
            warning = _unanswered([row.name], row.backend)
        else:
            warning = f"{row.name} stays at {row.path or 'its place'} on {run.worker_name or 'its worker'}"

        async def decide(unit: Unit) -> None:
            await unit.delete_artifact(run_id, artifact_id)

        await self._writer.run(decide)
        return warning

    async def _artifact(self, run_id: str, artifact_id: str) -> Row[Any]:
        where = (artifacts.c.run_id == run_id, artifacts.c.artifact_id == artifact_id)
        async with self._db.read() as connection:
            row = (await connection.execute(select(artifacts).where(*where))).one_or_none()
        if row is None:
            message = f"Run {run_id} has no artifact {artifact_id}."
            raise CodefyError(message, code="artifact.not_found")
        return row

    async def _ended(self, run_id: str) -> Row[Any]:
        async with self._db.read() as connection:
            run = (await connection.execute(select(runs).where(runs.c.id == run_id))).one_or_none()
        if run is None:
            raise CodefyError(f"There is no run {run_id}.", code="run.not_found")
        if run.status in ACTIVE:
            raise CodefyError(f"Run {run_id} is {run.status}; cancel it first.", code="run.active")
        return run

    async def prune(self) -> int:
        """Remove what ended before the newest ones that are kept. How many.

        A run that may still be executing somewhere stays until that is known: what it wrote is still to come.
        """
        if self._keep_last < 0:
            return 0
        ended = (
            select(runs.c.id)
            .where(runs.c.status.in_([status.value for status in FINAL]), runs.c.settled.is_(True))
            .order_by(runs.c.finished_at.desc(), runs.c.queue_seq.desc())
            .offset(self._keep_last)
            .limit(1_000)
        )
        async with self._db.read() as connection:
            old = list(await connection.scalars(ended))
        for run_id in old:
            await self._remove(run_id, DiscardReason.RETENTION)
        return len(old)

    async def _remove(self, run_id: str, why: DiscardReason) -> str | None:
        for forget in self._forget:
            try:
                await forget(run_id)
            except Exception:
                self._log.exception("something of run %s stays", run_id)
        warning = await self._discard(run_id, why)

        async def decide(unit: Unit) -> None:
            await unit.delete(run_id)

        await self._writer.run(decide)
        return warning

    async def _discard(self, run_id: str, why: DiscardReason) -> str | None:
        """Let each backend remove its objects, before the rows that name them are gone. Those that a run was sent with
        are asked without any, too: an upload may have broken off.
        """
        async with self._db.read() as connection:
            run = (await connection.execute(select(runs).where(runs.c.id == run_id))).one_or_none()
            listed = (await connection.execute(select(artifacts).where(artifacts.c.run_id == run_id))).all()
            sent = select(attempts.c.backend).where(
                attempts.c.run_id == run_id, attempts.c.backend.is_not(None)
            )
            names = dict.fromkeys([row.backend for row in listed] + list(await connection.scalars(sent)))
        if run is None:
            return None
        problems = [
            _unanswered([row.name for row in listed if _is_arriving(row, name)], name)
            for name in names
            if any(_is_arriving(row, name) for row in listed)
        ]
        theirs = saved_by_name(run.files)
        held = [row for row in listed if row.state == ArtifactState.STORED and not theirs(row.relative_path)]
        problems += [
            problem
            for name in names
            if (
                problem := await self._discard_of(
                    name, run, [stored_object(row) for row in held if row.backend == name], why
                )
            )
        ]
        return "; ".join(problems) or None

    async def _discard_of(
        self, backend: str, run: Any, objects: Sequence[StoredObject], why: DiscardReason
    ) -> str | None:
        store = self._stores.get(backend)
        if store is None:
            return f"the files that {backend} holds stay: it isn't on" if objects else None
        keep = set() if why is DiscardReason.ARTIFACT else {"output"}
        if why is DiscardReason.RETENTION and run.cause in KEPT:
            keep.add("checkpoint")
        view = RunView(
            id=RunId(run.id),
            name=run.name,
            status=RunStatus(run.status),
            worker_id=None if run.worker_id is None else WorkerId(run.worker_id),
        )
        order = Discard(run=view, stored=tuple(objects), why=why, keep_kinds=frozenset(keep))
        try:
            await store.discard(order)
        except Exception as error:
            self._log.warning("files of run %s stay: %s", run.id, error, exc_info=error)
            return f"some files stay: {error}"
        return None


def _is_arriving(row: Row[Any], backend: str) -> bool:
    return bool(row.state == ArtifactState.ARRIVING and row.backend == backend)


def _unanswered(names: Sequence[str], backend: str) -> str:
    files = names[0] if len(names) == 1 else f"{len(names)} files, {names[0]} among them,"
    return f"{files} may stay with the storage backend {backend}, which doesn't answer"


def saved_by_name(files: Any) -> Callable[[str | None], bool]:
    """Tells what a node wrote into a data folder under a name that a person gave it: theirs, as any file that they put
    there. ``files`` are a run's, as they are stored.
    """
    uses = () if files is None else FILES.validate_python(files).uses
    names = {
        f"{use.family.value}/{PurePosixPath(use.value)}"
        for use in uses
        if use.role is FileRole.WRITES and use.family is not None and use.value
    }

    def theirs(relative_path: str | None) -> bool:
        """Savers may append what their format is called."""
        return any(relative_path == name or (relative_path or "").startswith(f"{name}.") for name in names)

    return theirs


def stored_object(row: Any) -> StoredObject:
    """An artifact's row, as its backend knows it."""
    return StoredObject(
        key=row.artifact_id,
        kind=row.kind,
        name=row.name,
        relative_path=row.relative_path or "",
        size_bytes=row.size_bytes,
        sha256=None if row.sha256 is None else Sha256(row.sha256),
        label=row.label,
        data=row.data or {},
    )
