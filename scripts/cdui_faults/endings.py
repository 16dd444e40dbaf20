"""Which endings of a run its faults explain. An ending that nothing explains is a failure of the system."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .injector import Injected
from .machines import STEP_S
from .schedule import OF_STORE, SERVER, STORE, Kind
from .stored import StoredRun
from .watcher import Asked

SLACK_MS = 1000
"""Between the clock of a fault and the clocks in the database."""

_ALLOWED = {
    Kind.CANCEL: frozenset({"cancelled"}),
    Kind.KILL_RUN: frozenset({"failed"}),
    Kind.KILL_KEEPER: frozenset({"failed"}),
    Kind.KILL_AGENT: frozenset({"interrupted"}),
    Kind.KILL_AT_END: frozenset({"interrupted"}),
    Kind.POWER_LOSS: frozenset({"interrupted"}),
    Kind.STOP_AGENT: frozenset({"cancelled", "interrupted"}),
    Kind.KILL_SERVER: frozenset({"interrupted"}),
    Kind.RESTART_SERVER: frozenset({"interrupted"}),
}
"""Faults of lines, pauses, clocks and the database are missing: they cost no run unless the grace ran out."""
_FULL = frozenset({Kind.FULL_SERVER, Kind.FULL_AGENT})
_OF_FULL = frozenset({"disk_full", "refused", "storage"})
"""Causes that a place without room gives for a run that it couldn't begin, or whose files it couldn't write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What endings depend on besides faults."""

    grace_s: float
    began_ms: int
    """When the site began to live, by our clock. It lives for less than an hour."""

    def real_ms(self, stamp_ms: int) -> int:
        """By our clock, for a stamp by one that may have been stepped by whole hours."""
        return self.began_ms - SLACK_MS + (stamp_ms - self.began_ms + SLACK_MS) % (STEP_S * 1000)


def unexplained(run: StoredRun, asked: Asked, injected: Sequence[Injected], setting: Setting) -> str | None:
    """Why this ending shouldn't be; None when all is well."""
    wanted = "succeeded" if asked.ending == "return" else "failed"
    if run.status == wanted:
        return None
    kinds = {one.fault.kind for one in _hits(run, asked, injected, setting)}
    if run.status == "interrupted" and run.cause == "lease_lost" and _grace_ran_out(run, setting):
        return None
    if run.status in set().union(*(_ALLOWED.get(kind, set()) for kind in kinds)):
        return None
    if run.status == "failed" and run.cause in _OF_FULL and kinds & _FULL:
        return None
    if run.status == "failed" and run.cause == "storage" and kinds & OF_STORE:
        return None
    hits = ", ".join(sorted(kind.value for kind in kinds)) or "none"
    return f"ended {run.status} ({run.cause}: {run.error}), wanted {wanted}; faults that hit it: {hits}"


def _hits(run: StoredRun, asked: Asked, injected: Iterable[Injected], setting: Setting) -> list[Injected]:
    return [
        one
        for one in injected
        if one.run == asked.label or (one.run is None and _overlaps(run, asked, one, setting))
    ]


def _overlaps(run: StoredRun, asked: Asked, one: Injected, setting: Setting) -> bool:
    """The process above it was hit while it executed; the server's own runs have the server above them. A bucket is needed
    before that, too, for its inputs.
    """
    if run.finished_ms is None:
        return False
    if one.fault.target == STORE and asked.target != SERVER:
        created_ms = run.created_ms
    elif one.fault.target == asked.target and run.attempts:
        created_ms = run.attempts[0].created_ms
    else:
        return False
    began = setting.real_ms(created_ms) - SLACK_MS
    ended = setting.real_ms(run.finished_ms) + SLACK_MS
    return one.wall_ms <= ended and (one.mended_wall_ms or one.wall_ms) >= began


def _grace_ran_out(run: StoredRun, setting: Setting) -> bool:
    away = [
        setting.real_ms(stamp)
        for stamp, payload in zip(run.stamps, run.payloads, strict=True)
        if isinstance(payload, dict) and payload.get("kind") == "worker_disconnected"
    ]
    return (
        bool(away) and setting.real_ms(run.finished_ms or 0) - away[-1] >= setting.grace_s * 1000 - SLACK_MS
    )
