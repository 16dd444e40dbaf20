"""What is stored of a run and its newest attempt, as far as decisions need it. Values, never live rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from codefyui_core.plugin.values import JsonObject

from .machine import State
from .status import FINAL, AttemptState, Cause, RunStatus, StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One try at a run on one place. A field is a column of ``attempts``."""

    number: int
    worker_id: str | None
    """None: the server itself."""
    instance: str = ""
    lease_hash: str | None = None
    devices: tuple[str, ...] = ()
    incarnation: str | None = None
    state: AttemptState = AttemptState.ASSIGNED
    was: AttemptState | None = None
    position: int = 0
    slots_released: bool = False
    settled: bool = False
    away_since: int | None = None
    away_why: str | None = None
    backend: str | None = None
    ticket: JsonObject | None = None
    grant_version: int = 0
    evidence: JsonObject | None = None

    @property
    def place(self) -> str:
        """The identity that holds it: a worker's id, with ``.instance`` for one; empty for the server."""
        return identity(self.worker_id, self.instance)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run. A field is a column of ``runs``, but for ``attempt_now``, the newest attempt."""

    id: str
    queue_seq: int
    name: str
    status: RunStatus
    queue_key: str
    has_secrets: bool = False
    queue_reason: str | None = None
    queue_reason_code: str | None = None
    worker_id: str | None = None
    worker_name: str | None = None
    devices: tuple[str, ...] | None = None
    attempt: int = 0
    error: str | None = None
    cause: Cause | None = None
    exit_code: int | None = None
    signal: int | None = None
    peak_memory_bytes: int | None = None
    stderr_tail: tuple[str, ...] | None = None
    stop_reason: StopReason | None = None
    settled: bool = False
    last_cursor: int = 0
    final_metrics: dict[str, float | None] | None = None
    execution_facts: dict[str, Any] | None = None
    late_result: JsonObject | None = None
    started_at: int | None = None
    finished_at: int | None = None
    attempt_now: AttemptRecord | None = field(default=None)

    @property
    def state(self) -> State:
        if self.status in FINAL:
            return State.SETTLED if self.settled else State.LATE
        attempt = self.attempt_now
        if attempt is None or attempt.state is AttemptState.VOID:
            return State.QUEUED
        return _STATES[(attempt.state, attempt.was if attempt.state is AttemptState.AWAY else None)]

    @property
    def now(self) -> AttemptRecord:
        """The newest attempt of a run that was placed."""
        assert self.attempt_now is not None
        return self.attempt_now

    def story(self) -> Sequence[str]:
        """For the message of a transition that can't be."""
        attempt = self.attempt_now
        told = [f"run {self.id}", f"status {self.status}", f"cursor {self.last_cursor}"]
        if attempt is None:
            return told
        return [
            *told,
            f"attempt {attempt.number} on {attempt.place or 'server'}",
            f"position {attempt.position}",
        ]


_STATES = {
    (AttemptState.ASSIGNED, None): State.ASSIGNED,
    (AttemptState.ACTIVE, None): State.ACTIVE,
    (AttemptState.AWAY, AttemptState.ASSIGNED): State.AWAY_ASSIGNED,
    (AttemptState.AWAY, AttemptState.ACTIVE): State.AWAY_ACTIVE,
}


def identity(worker_id: str | None, instance: str = "") -> str:
    """How a worker or one of its instances is named between runs and links; empty for the server."""
    return f"{worker_id}.{instance}" if worker_id and instance else worker_id or ""


def split_identity(name: str) -> tuple[str, str]:
    """``id`` or ``id.instance`` -> worker id, instance (empty for none)."""
    worker_id, _, instance = name.partition(".")
    return worker_id, instance
