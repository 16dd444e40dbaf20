"""A worker is removed or gets a new credential (T8): its runs end in the very transaction that changes it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from codefyui_core.control.db.tables import attempts, runs, workers
from codefyui_core.runs.conclude import Conclusion
from codefyui_core.runs.machine import Event, State
from codefyui_core.runs.options import WorkerTarget
from codefyui_core.runs.record import RunRecord
from codefyui_core.runs.status import Cause
from codefyui_core.runs.steps import Details, apply

from .board import Board
from .decisions import EXECUTING, Decision, failed, interrupted
from .desk import Alongside
from .unit import Unit

T = TypeVar("T")
AT_ONCE = 500
"""Waiting runs that are read by one statement."""


def removal(
    board: Board, worker_id: str, name: str, alongside: Alongside[T]
) -> Callable[[Unit], Awaitable[T]]:
    """What it and its instances execute is interrupted, what waits for them has failed."""
    gone = interrupted(f"worker {name} was removed", Cause.REFUSED)
    lost = failed(f"worker {name} was removed before the run was sent to it", Cause.REFUSED)

    async def decide(unit: Unit) -> T:
        answer = await alongside(unit.connection)
        await _end(unit, worker_id, Event.REMOVED, gone)
        await _drop(unit, _naming(board, name), lost)
        return answer

    return decide


def rekeying(worker_id: str, alongside: Alongside[T]) -> Callable[[Unit], Awaitable[T]]:
    """What it executes is interrupted, and may still be handed in."""
    lost = interrupted("its worker got a new credential while it ran", Cause.CREDENTIALS)

    async def decide(unit: Unit) -> T:
        answer = await alongside(unit.connection)
        await _end(unit, worker_id, Event.REKEYED, lost)
        return answer

    return decide


def to_enrolled(decision: Decision, worker_id: str) -> Decision:
    """Placing on a worker, unless it was removed meanwhile: then nothing is placed."""

    async def decide(unit: Unit) -> RunRecord | None:
        known = select(workers.c.id).where(workers.c.id == worker_id)
        if await unit.connection.scalar(known) is None:
            return None
        return await decision(unit)

    return decide


async def is_enrolled(connection: AsyncConnection, name: str) -> bool:
    """Is there a worker of that name, or the one of that instance?"""
    known = select(workers.c.id).where(workers.c.name_key == _base(name))
    return await connection.scalar(known) is not None


async def _end(unit: Unit, worker_id: str, event: Event, conclusion: Conclusion) -> None:
    details = Details(conclusion=conclusion)
    for record in await unit.load_all(attempts.c.worker_id == worker_id, runs.c.settled.is_(False)):
        if record.state in EXECUTING or (record.state is State.LATE and event is Event.REMOVED):
            await unit.save(apply(record, event, at_ms=unit.at_ms, details=details))


async def _drop(unit: Unit, run_ids: Sequence[str], conclusion: Conclusion) -> None:
    details = Details(conclusion=conclusion)
    for first in range(0, len(run_ids), AT_ONCE):
        for record in await unit.load_all(runs.c.id.in_(run_ids[first : first + AT_ONCE])):
            if record.state is State.QUEUED:
                await unit.save(apply(record, Event.DROP, at_ms=unit.at_ms, details=details))


def _naming(board: Board, name: str) -> Sequence[str]:
    """Runs that wait for it, and those on their way into the database."""
    return [
        run_id
        for run_id, request in board.requests.items()
        if isinstance(request.needs.target, WorkerTarget)
        and _base(request.needs.target.worker) == name.lower()
        and run_id not in board.flights
    ]


def _base(name: str) -> str:
    return name.lower().partition(".")[0]
