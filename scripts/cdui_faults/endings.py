"""Which endings of a run its faults explain. An ending that nothing explains is a failure of the system."""

from collections.abc import Iterable, Sequence

from .injector import Injected
from .schedule import GRACE_S, SERVER, Kind
from .stored import StoredRun
from .watcher import Asked

SLACK_MS = 1000
"""Between the clock of a fault and the clocks in the database."""

_ALLOWED = {
    Kind.CANCEL: frozenset({"cancelled"}),
    Kind.KILL_RUN: frozenset({"failed"}),
    Kind.KILL_KEEPER: frozenset({"failed"}),
    Kind.KILL_AGENT: frozenset({"interrupted"}),
    Kind.STOP_AGENT: frozenset({"cancelled", "interrupted"}),
    Kind.KILL_SERVER: frozenset({"interrupted"}),
    Kind.RESTART_SERVER: frozenset({"interrupted"}),
}
"""Faults of lines and pauses are missing: they cost no run unless the grace ran out."""


def unexplained(run: StoredRun, asked: Asked, injected: Sequence[Injected]) -> str | None:
    """Why this ending shouldn't be; None when all is well."""
    wanted = "succeeded" if asked.ending == "return" else "failed"
    if run.status == wanted:
        return None
    allowed = set().union(*(_ALLOWED.get(one.fault.kind, set()) for one in _hits(run, asked, injected)))
    if run.status == "interrupted" and run.cause == "lease_lost" and _grace_ran_out(run):
        return None
    if run.status in allowed:
        return None
    hits = ", ".join(sorted({one.fault.kind.value for one in _hits(run, asked, injected)})) or "none"
    return f"ended {run.status} ({run.cause}: {run.error}), wanted {wanted}; faults that hit it: {hits}"


def _hits(run: StoredRun, asked: Asked, injected: Iterable[Injected]) -> list[Injected]:
    return [
        one for one in injected if one.run == asked.label or (one.run is None and _overlaps(run, asked, one))
    ]


def _overlaps(run: StoredRun, asked: Asked, one: Injected) -> bool:
    """The process above it was hit while it executed; the server's own runs have the server above them."""
    server_hit = one.fault.target == SERVER
    if server_hit is not (asked.target == SERVER) or (not server_hit and one.fault.target != asked.target):
        return False
    if not run.attempts or run.finished_ms is None:
        return False
    began, ended = run.attempts[0].created_ms - SLACK_MS, run.finished_ms + SLACK_MS
    return one.wall_ms <= ended and (one.mended_wall_ms or one.wall_ms) >= began


def _grace_ran_out(run: StoredRun) -> bool:
    away = [
        stamp
        for stamp, payload in zip(run.stamps, run.payloads, strict=True)
        if isinstance(payload, dict) and payload.get("kind") == "worker_disconnected"
    ]
    return bool(away) and (run.finished_ms or 0) - away[-1] >= GRACE_S * 1000 - SLACK_MS
