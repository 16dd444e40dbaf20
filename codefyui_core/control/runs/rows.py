"""Between rows of the database and the records that decisions are made of."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from enum import Enum
from typing import Any

from sqlalchemy import Row, Select, select
from sqlalchemy.sql import ColumnElement

from codefyui_core.control.db.bulk import BulkInsert
from codefyui_core.control.db.tables import artifacts, attempts, run_events, run_metrics, runs
from codefyui_core.control.db.types import readable
from codefyui_core.plugin.views import RunStatus
from codefyui_core.runs.events import ArtifactRow, Derived, NewEvent
from codefyui_core.runs.record import AttemptRecord, RunRecord
from codefyui_core.runs.status import AttemptState, Cause, StopReason

_RUN = tuple(field.name for field in fields(RunRecord) if field.name != "attempt_now")
_ATTEMPT = tuple(field.name for field in fields(AttemptRecord))
_READ: Mapping[str, Callable[[Any], Any]] = {
    "status": RunStatus,
    "cause": Cause,
    "stop_reason": StopReason,
    "state": AttemptState,
    "was": AttemptState,
    "devices": tuple,
    "stderr_tail": tuple,
}
_COLUMNS: tuple[ColumnElement[Any], ...] = (
    *(runs.c[name].label(f"r_{name}") for name in _RUN),
    *(attempts.c[name].label(f"a_{name}") for name in _ATTEMPT),
)
_JOINED = runs.outerjoin(attempts, (attempts.c.run_id == runs.c.id) & (attempts.c.number == runs.c.attempt))


def records() -> Select[Any]:
    """Runs with their newest attempts; add the conditions, read the rows with ``record_of``."""
    return select(*_COLUMNS).select_from(_JOINED)


def record_of(row: Row[Any]) -> RunRecord:
    """The record of one row of ``records``."""
    values = row._mapping
    attempt = None
    if values["a_number"] is not None:
        attempt = AttemptRecord(**{name: _read(name, values[f"a_{name}"]) for name in _ATTEMPT})
    return RunRecord(**{name: _read(name, values[f"r_{name}"]) for name in _RUN}, attempt_now=attempt)


def _read(name: str, value: Any) -> Any:
    convert = _READ.get(name)
    return value if convert is None or value is None else convert(value)


def run_changes(before: RunRecord, after: RunRecord) -> dict[str, Any]:
    """The columns of ``runs`` that differ."""
    return _differing(before, after, _RUN)


def attempt_changes(before: AttemptRecord | None, after: AttemptRecord) -> dict[str, Any]:
    """The columns of ``attempts`` that differ; all of them for a new attempt."""
    if before is None or before.number != after.number:
        return {name: _plain(getattr(after, name)) for name in _ATTEMPT}
    return _differing(before, after, _ATTEMPT)


def _differing(before: Any, after: Any, names: tuple[str, ...]) -> dict[str, Any]:
    if before is after:
        return {}
    pairs = ((name, getattr(before, name), getattr(after, name)) for name in names)
    return {name: _plain(new) for name, old, new in pairs if new is not old and new != old}


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


EVENTS = BulkInsert(run_events, "run_id", "cursor", "attempt", "seq", "type", "payload", "ts")


def event_row(run_id: str, event: NewEvent) -> tuple[Any, ...]:
    """For ``EVENTS``."""
    return (run_id, event.cursor, event.attempt, event.seq, event.type, event.text, event.ts)


METRICS = BulkInsert(
    run_metrics, "run_id", "cursor", "i", "node_id", "name", "step", "value", "special", "ts"
)


def metric_rows(run_id: str, cursor: int, ts: int, derived: Derived) -> Iterator[tuple[Any, ...]]:
    """For ``METRICS``."""
    for row in derived.metrics:
        node_id = None if row.node_id is None else readable(row.node_id)
        name = readable(row.name)
        yield (run_id, cursor, row.i, node_id, name, row.step, row.value, row.special, ts)


def artifact_values(run_id: str, cursor: int | None, ts: int, row: ArtifactRow) -> dict[str, Any]:
    """``cursor``: of the event that tells of it; None: there is none."""
    return {
        artifacts.c.run_id.name: run_id,
        "artifact_id": row.artifact_id,
        "cursor": cursor,
        "kind": row.kind,
        "name": row.name,
        "backend": row.backend,
        "label": row.label,
        "relative_path": row.relative_path,
        "path": row.path,
        "size_bytes": row.size_bytes,
        "sha256": row.sha256,
        "state": row.state,
        "node_id": row.node_id,
        "meta": row.meta,
        "data": row.data,
        "created_at": ts,
    }
