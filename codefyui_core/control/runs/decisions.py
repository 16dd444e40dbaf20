"""Decisions about single runs, as the writer runs them. Each reads first, so that running it twice does no harm."""

from collections.abc import Awaitable, Callable, Sequence

from codefyui_core.errors import CodefyError
from codefyui_core.plugin.views import RunStatus, RunWarning
from codefyui_core.runs.conclude import Conclusion, Evidence, conclude
from codefyui_core.runs.machine import Event, State
from codefyui_core.runs.record import AttemptRecord, RunRecord
from codefyui_core.runs.status import ACTIVE, Cause, Outcome, StopReason
from codefyui_core.runs.steps import Change, Details, Draft, apply
from codefyui_core.runs.steps import place as placed_on

from .unit import Unit

Decision = Callable[[Unit], Awaitable[RunRecord | None]]
OVER = frozenset({State.LATE, State.SETTLED})
EXECUTING = frozenset({State.ASSIGNED, State.ACTIVE, State.AWAY_ASSIGNED, State.AWAY_ACTIVE})
AWAY = frozenset({State.AWAY_ASSIGNED, State.AWAY_ACTIVE})
RESTARTED = "the server restarted"
"""Why a taken-over run is away; its grace ends with another text."""


def place(
    run_id: str, attempt: AttemptRecord, worker_name: str | None, warnings: Sequence[RunWarning] = ()
) -> Decision:
    """T2: give a waiting run to a place. None: it isn't waiting any more."""

    async def decide(unit: Unit) -> RunRecord | None:
        record = await unit.load(run_id)
        if record is None:
            return None
        if record.state is not State.QUEUED:
            return record if _is(record, attempt) else None
        after = await unit.save(placed_on(record, attempt, worker_name, at_ms=unit.at_ms))
        draft = Draft(before=after, at_ms=unit.at_ms)
        for warning in warnings:
            draft.warn(warning.kind, warning.message)
        return await unit.save(draft.done())

    return decide


def _is(record: RunRecord, attempt: AttemptRecord) -> bool:
    """The commit whose outcome was unknown had been made."""
    now = record.attempt_now
    return now is not None and now.number == attempt.number and now.lease_hash == attempt.lease_hash


def drop(run_id: str, conclusion: Conclusion) -> Decision:
    """End a run that still waits."""

    async def decide(unit: Unit) -> RunRecord | None:
        record = await unit.load(run_id)
        if record is None or record.state is not State.QUEUED:
            return record
        return await unit.save(
            apply(record, Event.DROP, at_ms=unit.at_ms, details=Details(conclusion=conclusion))
        )

    return decide


def stop(run_id: str, reason: StopReason) -> Decision:
    """T7: store who asked; what waits is over with it."""

    async def decide(unit: Unit) -> RunRecord | None:
        record = await unit.load(run_id)
        if record is None or record.state in OVER:
            return record
        return await unit.save(stopped(record, reason, unit.at_ms))

    return decide


def cancel(run_id: str) -> Callable[[Unit], Awaitable[tuple[RunStatus, bool]]]:
    """T7 for a person: the status that it has now, and whether there was something left to stop.

    The decision raises CodefyError ``run.not_found``.
    """
    was_active: bool | None = None

    async def decide(unit: Unit) -> tuple[RunStatus, bool]:
        nonlocal was_active  # as it was before the first try, whose commit may have come through unheard
        record = await unit.load(run_id)
        if record is None:
            raise CodefyError(f"There is no run {run_id}.", code="run.not_found")
        was_active = record.status in ACTIVE if was_active is None else was_active
        if record.state not in OVER:
            record = await unit.save(stopped(record, StopReason.USER, unit.at_ms))
        return record.status, was_active

    return decide


def stopped(record: RunRecord, reason: StopReason, at_ms: int) -> Change:
    details = Details(reason=reason, conclusion=conclude(Evidence(stop_reason=reason)))
    return apply(record, Event.STOP, at_ms=at_ms, details=details)


def end_alone(
    run_id: str, event: Event, attempt: int, conclusion: Callable[[RunRecord], Conclusion]
) -> Decision:
    """T6: end an attempt without its worker's word."""

    async def decide(unit: Unit) -> RunRecord | None:
        record = await unit.load(run_id)
        if record is None or record.attempt != attempt or record.state not in EXECUTING:
            return record
        details = Details(conclusion=conclusion(record))
        return await unit.save(apply(record, event, at_ms=unit.at_ms, details=details))

    return decide


def abandon(run_id: str, error: str) -> Decision:
    """An own run whose task failed on the server's side."""

    async def decide(unit: Unit) -> RunRecord | None:
        record = await unit.load(run_id)
        if record is None or record.state not in {State.ASSIGNED, State.ACTIVE}:
            return record
        event = Event.REFUSED if record.state is State.ASSIGNED else Event.END
        conclusion = conclude(Evidence(outcome=Outcome.FAILED, error=error, cause=Cause.SIGNAL))
        return await unit.save(apply(record, event, at_ms=unit.at_ms, details=Details(conclusion=conclusion)))

    return decide


def warn(run_id: str, warning: RunWarning) -> Decision:
    """Add a ``run_warning`` to a run that isn't over."""

    async def decide(unit: Unit) -> RunRecord | None:
        record = await unit.load(run_id)
        if record is None or record.state in OVER:
            return record
        draft = Draft(before=record, at_ms=unit.at_ms)
        draft.warn(warning.kind, warning.message)
        return await unit.save(draft.done())

    return decide


def link_down(record: RunRecord, why: str, grace_s: float, at_ms: int) -> Change | None:
    """T4 for one attempt. None: nothing changes by it."""
    if record.state not in EXECUTING:
        return None
    if grace_s > 0:
        details = Details(why=why)
        return apply(record, Event.LINK_DOWN, at_ms=at_ms, details=details)
    conclusion = interrupted(f"the connection to its worker ended ({why})", Cause.LEASE_LOST)
    return apply(record, Event.LINK_LOST, at_ms=at_ms, details=Details(conclusion=conclusion))


def grace_over(grace_s: float) -> Callable[[RunRecord], Conclusion]:
    """How a run reads whose worker didn't come back in time."""

    def conclusion(record: RunRecord) -> Conclusion:
        after = " after this server restarted" if record.now.away_why == RESTARTED else ""
        worker = record.worker_name or "its worker"
        text = f"worker {worker} did not reconnect with the run within {grace_s:g} s{after}"
        return interrupted(text, Cause.LEASE_LOST)

    return conclusion


def take_over(record: RunRecord, *, grace_s: float, after_stop: bool, at_ms: int) -> Change | None:
    """T9 for one run that was executing when the last server ended. None for one that wasn't."""
    if record.state not in EXECUTING:
        return None
    if record.now.worker_id is None:
        conclusion = interrupted("the server stopped while it ran", Cause.SHUTDOWN)
        return _alone(record, Event.PROCESS_GONE, conclusion, at_ms)
    if after_stop:
        conclusion = interrupted("the server was stopped before its worker reported the end", Cause.SHUTDOWN)
        return _alone(record, Event.TAKE_OVER_LOST, conclusion, at_ms)
    if grace_s <= 0 or record.now.lease_hash is None:
        conclusion = interrupted(
            "the server restarted, and the run has nothing to resume from", Cause.LEASE_LOST
        )
        return _alone(record, Event.TAKE_OVER_LOST, conclusion, at_ms)
    return apply(record, Event.TAKE_OVER, at_ms=at_ms, details=Details(why=RESTARTED))


def _alone(record: RunRecord, event: Event, conclusion: Conclusion, at_ms: int) -> Change:
    return apply(record, event, at_ms=at_ms, details=Details(conclusion=conclusion))


def interrupted(error: str, cause: Cause) -> Conclusion:
    return Conclusion(status=RunStatus.INTERRUPTED, error=error, cause=cause)


def failed(error: str, cause: Cause) -> Conclusion:
    return Conclusion(status=RunStatus.FAILED, error=error, cause=cause)
