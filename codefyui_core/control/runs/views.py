"""Rows of runs, events, metrics and artifacts, as the API shows them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, RowMapping, Select, func, or_, select

from codefyui_core.control.db.tables import artifacts, attempts, run_events, run_metrics, runs
from codefyui_core.plugin.storage import Place
from codefyui_core.plugin.views import RunStatus
from codefyui_core.runs.events import NewEvent, read_text
from codefyui_core.runs.queue import Reason
from codefyui_core.runs.status import ACTIVE, AttemptState

LONG = frozenset({"execution_facts", "stderr_tail"})
"""What lists of runs leave out."""
_LEFT_OUT = frozenset(
    {"document", "node_types", "files", "submit_id", "queue_seq", "has_secrets", "settled", "graph_hash"}
)
_COLUMNS = [column for column in runs.c if column.name not in _LEFT_OUT]
_AWAY = (attempts.c.state.label("attempt_state"), attempts.c.away_since)
_JOINED = runs.outerjoin(attempts, (attempts.c.run_id == runs.c.id) & (attempts.c.number == runs.c.attempt))


def shown_runs() -> Select[Any]:
    """Select the rows that ``run_row`` reads."""
    return select(*_COLUMNS, *_AWAY).select_from(_JOINED)


def run_row(
    row: Row[Any], *, position: int | None, reason: Reason | None, long: bool = True
) -> dict[str, Any]:
    """One run. ``long``: with what lists leave out."""
    values = row._mapping
    active = values["status"] in ACTIVE
    shown = {
        "id": values["id"],
        "name": values["name"],
        "options": values["options"],
        "target": values["target"],
        "status": values["status"],
        "active": active,
        "error": values["error"],
        "cause": values["cause"],
        "exit_code": values["exit_code"],
        "signal": values["signal"],
        "peak_memory_bytes": values["peak_memory_bytes"],
        "stderr_tail": values["stderr_tail"] or [],
        "device": values["device"],
        "devices": values["devices"] or [],
        "worker_id": values["worker_id"],
        "worker": values["worker_name"],
        "worker_status": worker_status(values),
        "attempt": values["attempt"],
        "queue_key": values["queue_key"],
        "queue_position": position,
        "queue_reason": None if reason is None else reason.text,
        "queue_reason_code": None if reason is None else reason.code,
        "stop_requested": active and values["stop_reason"] is not None,
        "created_at": shown_time(values["created_at"]),
        "started_at": shown_time(values["started_at"]),
        "finished_at": shown_time(values["finished_at"]),
        "git_commit": values["git_commit"],
        "git_dirty": values["git_dirty"],
        "plugin_pins": values["plugin_pins"],
        "sweep_id": values["sweep_id"],
        "sweep_variant": values["sweep_variant"],
        "final_metrics": values["final_metrics"] or {},
        "execution_facts": values["execution_facts"],
        "late_result": late_result(values["late_result"]),
        "last_cursor": values["last_cursor"],
    }
    return shown if long else {name: value for name, value in shown.items() if name not in LONG}


def worker_status(values: RowMapping) -> dict[str, Any] | None:
    """None for the server's own runs, and for those that wait or are over."""
    executing = values["status"] in {RunStatus.RUNNING, RunStatus.DISCONNECTED}
    if not executing or values["worker_id"] is None:
        return None
    away = values["attempt_state"] == AttemptState.AWAY
    return {
        "state": "away" if away else "online",
        "since": shown_time(values["away_since"]) if away else None,
        "name": values["worker_name"],
    }


def late_result(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """With its time as people read it."""
    return None if value is None else {**value, "at": shown_time(value["at"])}


def shown_time(milliseconds: int | None) -> str | None:
    """RFC 3339, UTC, with milliseconds."""
    if milliseconds is None:
        return None
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def filters(
    statuses: Sequence[str], target: str | None, worker: str | None, q: str | None
) -> list[ColumnElement[bool]]:
    """Conditions of a list of runs. ``target``: a queue key's first part, as ``server`` or a worker's name."""
    found: list[ColumnElement[bool]] = []
    if statuses:
        found.append(runs.c.status.in_(statuses))
    if target:
        found.append(runs.c.queue_key.startswith(f"{target}/", autoescape=True))
    if worker:
        found.append(func.lower(runs.c.worker_name) == worker.lower())
    if q:
        found.append(
            or_(
                func.lower(runs.c.name).contains(q.lower(), autoescape=True),
                runs.c.id.startswith(q.lower(), autoescape=True),
            )
        )
    return found


def event_json(event: NewEvent) -> dict[str, Any]:
    """One line of a log."""
    return {
        "cursor": event.cursor,
        "type": event.type,
        "payload": read_text(event.text),
        "ts": shown_time(event.ts),
    }


def page(run_id: str, cursor: int, limit: int) -> Select[Any]:
    """Events after a cursor, in order."""
    return (
        select(run_events)
        .where(run_events.c.run_id == run_id, run_events.c.cursor > cursor)
        .order_by(run_events.c.cursor)
        .limit(limit)
    )


def event_of(row: Row[Any]) -> NewEvent:
    return NewEvent(row.cursor, row.type, row.payload, row.ts, row.attempt, row.seq)


def metric_rows(run_id: str, name: str | None) -> Select[Any]:
    """Points in the order in which they were reported."""
    found = select(run_metrics).where(run_metrics.c.run_id == run_id)
    if name is not None:
        found = found.where(run_metrics.c.name == name)
    return found.order_by(run_metrics.c.cursor, run_metrics.c.i)


def metric_json(row: Row[Any]) -> dict[str, Any]:
    """A non-finite value is null with the word for it beside."""
    shown = {
        "node_id": row.node_id,
        "name": row.name,
        "step": row.step,
        "value": row.value,
        "ts": shown_time(row.ts),
    }
    return shown if row.special is None else {**shown, "special": row.special}


def artifact_rows(run_id: str, kind: str | None) -> Select[Any]:
    """Oldest first; last those that were listed after the end of the log."""
    found = select(artifacts).where(artifacts.c.run_id == run_id)
    if kind is not None:
        found = found.where(artifacts.c.kind == kind)
    return found.order_by(artifacts.c.cursor.nulls_last())


def artifact_json(row: Row[Any], place: Place) -> dict[str, Any]:
    """One artifact, and where it is now."""
    return {
        "id": row.artifact_id,
        "kind": row.kind,
        "name": row.name,
        "backend": row.backend,
        "label": row.label,
        "relative_path": row.relative_path,
        "path": place.path,
        "size_bytes": row.size_bytes,
        "sha256": row.sha256,
        "state": row.state,
        "downloadable": place.downloadable,
        "node_id": row.node_id,
        "meta": row.meta or {},
        "created_at": shown_time(row.created_at),
    }
