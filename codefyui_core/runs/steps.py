"""What a transition makes of a record: the next values, the public events, and what is left to do. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from codefyui_core.plugin.values import JsonObject

from .conclude import Conclusion
from .events import (
    NOTHING,
    Derived,
    EventType,
    MetricRow,
    NewEvent,
    WarningKind,
    closing_event,
    derive,
    fold_final,
    storable,
    warning_payload,
)
from .machine import Effect, Event, State, step
from .owed import LAST, Call, Owed
from .record import AttemptRecord, RunRecord
from .status import AttemptState, RunStatus, StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """From one record to the next. ``effects`` are for after the commit."""

    before: RunRecord
    after: RunRecord
    events: tuple[NewEvent, ...] = ()
    derived: tuple[tuple[int, Derived], ...] = ()
    """Rows by the cursor of their event."""
    effects: tuple[Effect, ...] = ()
    owed: tuple[Owed, ...] = ()
    """To the storage backend of the attempt."""

    @property
    def empty(self) -> bool:
        return self.before == self.after and not self.events


@dataclass(slots=True, kw_only=True)
class Draft:
    """A change in the making."""

    before: RunRecord
    at_ms: int
    run: RunRecord = field(init=False)
    events: list[NewEvent] = field(default_factory=list)
    derived: list[tuple[int, Derived]] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    owed: list[Owed] = field(default_factory=list)
    artifact_ids: set[str] = field(default_factory=set)
    """Listed by this change."""
    metrics: list[MetricRow] = field(default_factory=list)
    """Reported by this change; in ``run`` when done."""
    cursor: int = field(init=False)
    """Of the newest event; in ``run`` when done."""
    position: int = field(init=False)
    """Of the attempt's newest item; in ``run`` when done."""

    def __post_init__(self) -> None:
        self.run = self.before
        self.cursor = self.before.last_cursor
        self.position = 0 if self.before.attempt_now is None else self.before.now.position

    def done(self) -> Change:
        if self.cursor != self.run.last_cursor:
            self.set(last_cursor=self.cursor)
        if self.metrics:
            self.set(final_metrics=fold_final(self.run.final_metrics, self.metrics))
        if self.run.attempt_now is not None and self.position != self.run.now.position:
            self.set_attempt(position=self.position)
        if self._is_settled_now():
            self.owe(LAST, Call.SETTLED, {})
        return Change(
            before=self.before,
            after=self.run,
            events=tuple(self.events),
            derived=tuple(self.derived),
            effects=tuple(dict.fromkeys(self.effects)),
            owed=tuple(self.owed),
        )

    def _is_settled_now(self) -> bool:
        """An attempt on a worker that a storage backend serves ended with this change: nothing more comes from it."""
        before, after = self.before.attempt_now, self.run.attempt_now
        if before is None or after is None or before.number != after.number:
            return False
        has_backend = after.backend is not None and after.worker_id is not None
        return has_backend and after.settled and not before.settled

    def set(self, **values: Any) -> None:
        self.run = replace(self.run, **values)

    def set_attempt(self, **values: Any) -> None:
        self.set(attempt_now=replace(self.run.now, **values))

    def owe(self, seq: int, call: Call, payload: JsonObject) -> None:
        """To the storage backend of the newest attempt."""
        self.owed.append(Owed(self.run.attempt, seq, call, payload))

    def append(self, type_: str, payload: Mapping[str, Any], derived: Derived | None = None) -> None:
        """One event of the control plane at the next cursor, with its rows."""
        stored_type, text = storable(type_, payload, None)
        rows = derive(stored_type, payload) if derived is None else derived
        self._append(NewEvent(self.cursor + 1, stored_type, text, self.at_ms), rows)

    def append_text(self, type_: str, text: str, derived: Derived, *, ts: int, seq: int) -> None:
        """One event of the attempt's stream."""
        self._append(NewEvent(self.cursor + 1, type_, text, ts, self.run.attempt, seq), derived)

    def _append(self, event: NewEvent, derived: Derived) -> None:
        self.cursor = event.cursor
        self.events.append(event)
        if derived is NOTHING:
            return
        self.derived.append((event.cursor, derived))
        self.metrics += derived.metrics
        if derived.artifacts:
            self.artifact_ids.update(row.artifact_id for row in derived.artifacts)

    def warn(self, kind: str, detail: str, count: int = 1, **more: Any) -> None:
        self.append(EventType.WARNING, warning_payload(kind, detail, count) | more)

    def merge_facts(self, facts: Mapping[str, Any]) -> None:
        """Execution facts, key by key."""
        self.set(execution_facts=dict(self.run.execution_facts or {}) | dict(facts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """What an event knows beyond its name."""

    conclusion: Conclusion | None = None
    """For effects that close the run; or the late result."""
    reason: StopReason | None = None
    why: str = ""
    """Of a warning: what happened to the worker."""


def apply(record: RunRecord, event: Event, *, at_ms: int, details: Details | None = None) -> Change:
    """One event on its own.

    Raises: IllegalTransition.
    """
    draft = Draft(before=record, at_ms=at_ms)
    advance(draft, event, details or Details())
    return draft.done()


def advance(draft: Draft, event: Event, details: Details) -> None:
    """One transition within a draft."""
    was = draft.run.state
    line = step(was, event, draft.run.story)
    for effect in line.effects:
        carry_out = _EFFECTS.get(effect)
        if carry_out is None:
            draft.effects.append(effect)
        else:
            carry_out(draft, details)
    if line.next is not was:
        _ENTER[line.next](draft, was)


def place(record: RunRecord, attempt: AttemptRecord, worker_name: str | None, *, at_ms: int) -> Change:
    """Give a waiting run to a worker, or to the server (no worker id)."""
    draft = Draft(before=record, at_ms=at_ms)
    step(record.state, Event.PLACE, record.story)
    draft.set(
        attempt=attempt.number,
        attempt_now=attempt,
        status=RunStatus.RUNNING,
        worker_id=attempt.worker_id,
        worker_name=worker_name or record.worker_name,
        devices=attempt.devices,
        queue_reason=None,
        queue_reason_code=None,
    )
    return draft.done()


# ---------------------------------------------------------------- effects


def _free_slots(draft: Draft, _details: Details) -> None:
    if draft.run.attempt_now is not None:
        draft.set_attempt(slots_released=True)


def _keep_stop(draft: Draft, details: Details) -> None:
    """``user`` beats the rest; otherwise the first one stays."""
    if draft.run.stop_reason is None or details.reason is StopReason.USER:
        draft.set(stop_reason=details.reason)


def _mark_start(draft: Draft, _details: Details) -> None:
    if draft.run.started_at is None:
        draft.set(started_at=draft.at_ms)


def _warn_away(draft: Draft, details: Details) -> None:
    worker = draft.run.worker_name or "the worker"
    draft.warn(WarningKind.WORKER_DISCONNECTED, f"{worker}: {details.why}")
    _mark_away(draft, details)


def _mark_away(draft: Draft, details: Details) -> None:
    """Since when stays what it was through a restart of the server."""
    draft.set_attempt(away_since=draft.run.now.away_since or draft.at_ms, away_why=details.why)


def _warn_back(draft: Draft, _details: Details) -> None:
    worker = draft.run.worker_name or "the worker"
    draft.warn(WarningKind.WORKER_RECONNECTED, f"{worker} is back with the run")


def _close(draft: Draft, details: Details) -> None:
    """The final values, and the one closing event as the last of the log."""
    conclusion = details.conclusion
    assert conclusion is not None
    type_, payload = closing_event(conclusion)
    draft.append(type_, payload)
    draft.set(
        status=conclusion.status,
        error=conclusion.error,
        cause=conclusion.cause,
        finished_at=draft.at_ms,
        queue_reason=None,
        queue_reason_code=None,
    )


def _keep_late_result(draft: Draft, details: Details) -> None:
    """Written once; status and log stay as they were."""
    conclusion = details.conclusion
    assert conclusion is not None
    late: JsonObject = {
        "status": conclusion.status.value,
        "error": conclusion.error,
        "worker_id": draft.run.worker_id,
        "at": draft.at_ms,
    }
    if draft.run.late_result is None:
        draft.set(late_result=late)
        draft.merge_facts({"late_result": late})


_EFFECTS: Mapping[Effect, Callable[[Draft, Details], None]] = {
    Effect.FREE_SLOTS: _free_slots,
    Effect.KEEP_STOP: _keep_stop,
    Effect.MARK_START: _mark_start,
    Effect.WARN_AWAY: _warn_away,
    Effect.MARK_AWAY: _mark_away,
    Effect.WARN_BACK: _warn_back,
    Effect.CLOSE: _close,
    Effect.KEEP_LATE_RESULT: _keep_late_result,
}


# ---------------------------------------------------------------- entering a state


def _wait_again(draft: Draft, _was: State) -> None:
    draft.set_attempt(state=AttemptState.VOID, settled=True)
    named = draft.run.queue_key.startswith(f"{draft.run.worker_name}/")
    draft.set(status=RunStatus.QUEUED, worker_id=None, devices=None)
    if not named:
        draft.set(worker_name=None)


def _execute(state: AttemptState) -> Callable[[Draft, State], None]:
    def enter(draft: Draft, _was: State) -> None:
        draft.set_attempt(state=state, was=None, away_since=None, away_why=None)
        draft.set(status=RunStatus.RUNNING)

    return enter


def _away(was_state: AttemptState) -> Callable[[Draft, State], None]:
    def enter(draft: Draft, _was: State) -> None:
        since = draft.run.now.away_since or draft.at_ms
        draft.set_attempt(state=AttemptState.AWAY, was=was_state, away_since=since)
        draft.set(status=RunStatus.DISCONNECTED)

    return enter


def _end(*, settled: bool) -> Callable[[Draft, State], None]:
    def enter(draft: Draft, _was: State) -> None:
        draft.set(settled=settled)
        if draft.run.attempt_now is not None and draft.run.now.state is not AttemptState.VOID:
            draft.set_attempt(state=AttemptState.FINAL, settled=settled)

    return enter


_ENTER: Mapping[State, Callable[[Draft, State], None]] = {
    State.QUEUED: _wait_again,
    State.ASSIGNED: _execute(AttemptState.ASSIGNED),
    State.ACTIVE: _execute(AttemptState.ACTIVE),
    State.AWAY_ASSIGNED: _away(AttemptState.ASSIGNED),
    State.AWAY_ACTIVE: _away(AttemptState.ACTIVE),
    State.LATE: _end(settled=False),
    State.SETTLED: _end(settled=True),
}
