"""What a new server makes of the runs that the last one left (T9): one transaction each."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, or_, select

from codefyui_core.control.db.database import Database
from codefyui_core.control.db.tables import runs
from codefyui_core.plugin.views import RunStatus
from codefyui_core.runs.machine import State
from codefyui_core.runs.record import RunRecord
from codefyui_core.runs.status import ACTIVE, Cause

from .board import Board, Request, request_of
from .decisions import Decision, drop, interrupted, take_over
from .rows import record_of, records
from .unit import Unit
from .writer import Writer


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What the last server left."""

    last_seq: int
    waits: dict[str, float]
    """Seconds that waiting runs had waited for a one-shot worker."""


async def open_runs(*, db: Database, board: Board, writer: Writer, grace_s: float, durable: bool) -> Left:
    """Take over what executes on workers, keep what waits, end the rest. Doing it twice does no harm, but for
    one more warning a run.
    """
    left = await _read(db, board)
    for record in left.records:
        await _open(record, board.requests.get(record.id), board, writer, db, grace_s, durable=durable)
    return Left(last_seq=left.last_seq, waits=left.waits)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    records: Sequence[RunRecord]
    last_seq: int
    waits: dict[str, float]


async def _read(db: Database, board: Board) -> _Found:
    unfinished = or_(
        runs.c.status.in_([status.value for status in ACTIVE]),
        (runs.c.settled.is_(False)) & (runs.c.attempt > 0),
    )
    async with db.read() as connection:
        last_seq = await connection.scalar(select(func.max(runs.c.queue_seq))) or 0
        found = [record_of(row) for row in await connection.execute(records().where(unfinished))]
        asked = select(*(column for column in runs.c if column.name not in {"document"})).where(unfinished)
        rows = (await connection.execute(asked)).all()
    board.requests.update({row.id: request_of(row) for row in rows})
    waits = {row.id: row.queued_wait_s for row in rows if row.queued_wait_s}
    return _Found(records=sorted(found, key=lambda one: one.queue_seq), last_seq=last_seq, waits=waits)


async def _open(
    record: RunRecord,
    request: Request | None,
    board: Board,
    writer: Writer,
    db: Database,
    grace_s: float,
    *,
    durable: bool,
) -> None:
    if record.state is State.QUEUED:
        reason = _why_dropped(record, durable=durable)
        if reason is not None:
            await writer.run(drop(record.id, interrupted(reason, Cause.SHUTDOWN)))
            return
    elif record.status in {RunStatus.RUNNING, RunStatus.DISCONNECTED}:
        await writer.run(_taking_over(record.id, db, grace_s))
        return
    board.put(record)


def _why_dropped(record: RunRecord, *, durable: bool) -> str | None:
    if not durable:
        return "the server stopped while the run waited, and CODEFYUI_RUN_QUEUE_DURABLE is off"
    if record.has_secrets:
        return "the server stopped while the run waited, and its secret values were only in memory"
    return None


def _taking_over(run_id: str, db: Database, grace_s: float) -> Decision:
    async def decide(unit: Unit) -> RunRecord | None:
        record = await unit.load(run_id)
        if record is None:
            return None
        change = take_over(record, grace_s=grace_s, after_stop=db.shutdown_was == "stop", at_ms=unit.at_ms)
        return record if change is None else await unit.save(change)

    return decide
