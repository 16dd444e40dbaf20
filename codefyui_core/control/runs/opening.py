"""What a new server makes of the runs that the last one left (T9): one transaction each."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import func, or_, select

from codefyui_core.control.db.database import Database
from codefyui_core.control.db.tables import runs
from codefyui_core.plugin.views import RunStatus
from codefyui_core.runs.machine import State
from codefyui_core.runs.record import RunRecord
from codefyui_core.runs.status import ACTIVE, Cause

from .board import Board, Needs, Request, request_of
from .decisions import Decision, drop, interrupted, take_over
from .rows import record_of, records
from .unit import Unit
from .writer import Writer

PAGE = 1_000


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
    async with db.read() as connection:
        last_seq = await connection.scalar(select(func.max(runs.c.queue_seq))) or 0
    waits: dict[str, float] = {}
    known: dict[Needs, Needs] = {}
    after = -1
    while page := await _page(db, after):
        after = page[-1][0].queue_seq
        for record, request, waited_s in page:
            board.requests[record.id] = replace(request, needs=known.setdefault(request.needs, request.needs))
            if waited_s:
                waits[record.id] = waited_s
        opening = (_open(record, board, writer, db, grace_s, durable=durable) for record, _, _ in page)
        await asyncio.gather(*opening)  # the writer takes many in one commit
    return Left(last_seq=last_seq, waits=waits)


async def _page(db: Database, after: int) -> Sequence[tuple[RunRecord, Request, float]]:
    """The next unfinished runs in order of submission, each with the seconds that it has waited."""
    unfinished = or_(
        runs.c.status.in_([status.value for status in ACTIVE]),
        (runs.c.settled.is_(False)) & (runs.c.attempt > 0),
    )
    columns = (column for column in runs.c if column.name != "document")
    found = records().add_columns(*columns).where(unfinished, runs.c.queue_seq > after)
    async with db.read() as connection:
        rows = await connection.execute(found.order_by(runs.c.queue_seq).limit(PAGE))
        return [(record_of(row), request_of(row), row.queued_wait_s) for row in rows]


async def _open(
    record: RunRecord,
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
