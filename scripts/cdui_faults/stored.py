"""What the database holds, read by plain SQL without any code of the server's."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .databases import Row, Store

CLOSING = {"succeeded": "execution_complete", "failed": "execution_error"}
"""Status -> type of the closing event; execution_stopped for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt's row, as far as it matters here."""

    number: int
    state: str
    settled: bool
    slots_released: bool
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One artifact's row."""

    artifact_id: str
    kind: str
    name: str
    backend: str
    state: str
    relative_path: str | None
    sha256: str | None
    wanted: str | None
    """The hash that the run gave when it recorded it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """One run with all that belongs to it."""

    run_id: str
    name: str
    status: str
    cause: str | None
    error: str | None
    finished_ms: int | None
    last_cursor: int
    cursors: tuple[int, ...]
    types: tuple[str, ...]
    payloads: tuple[Any, ...]
    stamps: tuple[int, ...]
    counts: tuple[float, ...]
    attempts: tuple[Attempt, ...]
    artifacts: tuple[Artifact, ...] = ()
    created_ms: int = 0

    @property
    def closings(self) -> list[str]:
        return [found for found in self.types if found in {*CLOSING.values(), "execution_stopped"}]


THEIRS = "run_id IN (SELECT id FROM runs WHERE name LIKE :prefix)"


def read(store: Store, prefix: str) -> tuple[StoredRun, ...]:
    """The runs whose names begin so, oldest first."""
    runs = store.rows("SELECT * FROM runs WHERE name LIKE :prefix ORDER BY queue_seq", prefix=f"{prefix}%")

    def theirs(what: str, order: str) -> dict[str, list[Row]]:
        return _by_run(store.rows(f"{what} {THEIRS} ORDER BY {order}", prefix=f"{prefix}%"))

    events = theirs("SELECT run_id, cursor, type, payload, ts FROM run_events WHERE", "cursor")
    counts = theirs("SELECT run_id, value FROM run_metrics WHERE name = 'count' AND", "cursor, i")
    attempts = theirs("SELECT * FROM attempts WHERE", "number")
    artifacts = theirs("SELECT * FROM artifacts WHERE", "cursor")
    return tuple(
        _run(row, *(of.get(row["id"], ()) for of in (events, counts, attempts, artifacts))) for row in runs
    )


def unsettled(store: Store) -> list[str]:
    """What of all runs isn't over: runs without an end, attempts that hold slots or may still execute."""
    runs = store.rows(
        "SELECT id, status FROM runs WHERE status NOT IN ('succeeded', 'failed', 'cancelled', 'interrupted')"
    )
    attempts = store.rows(
        "SELECT run_id, number, state FROM attempts "
        "WHERE state <> 'void' AND (NOT settled OR NOT slots_released)"
    )
    return [f"{row['id']} is {row['status']}" for row in runs] + [
        f"attempt {row['number']} of {row['run_id']} ({row['state']})" for row in attempts
    ]


def unanswered(store: Store) -> list[str]:
    """What the storage backend of a run hasn't answered yet."""
    rows = store.rows("SELECT run_id, attempt, seq, call FROM storage_outbox ORDER BY run_id, attempt, seq")
    return [f"{row['call']} {row['seq']} of {row['run_id']}" for row in rows]


def _by_run(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["run_id"], []).append(row)
    return found


def _run(
    row: Row,
    events: Sequence[Row],
    counts: Sequence[Row],
    attempts: Sequence[Row],
    artifacts: Sequence[Row],
) -> StoredRun:
    return StoredRun(
        run_id=row["id"],
        name=row["name"],
        status=row["status"],
        cause=row["cause"],
        error=row["error"],
        finished_ms=row["finished_at"],
        last_cursor=row["last_cursor"],
        cursors=tuple(event["cursor"] for event in events),
        types=tuple(event["type"] for event in events),
        payloads=tuple(json.loads(event["payload"]) for event in events),
        stamps=tuple(event["ts"] for event in events),
        counts=tuple(count["value"] for count in counts),
        attempts=tuple(
            Attempt(
                number=found["number"],
                state=found["state"],
                settled=bool(found["settled"]),
                slots_released=bool(found["slots_released"]),
                created_ms=found["created_at"],
            )
            for found in attempts
        ),
        artifacts=tuple(map(_artifact, artifacts)),
        created_ms=row["created_at"],
    )


def _artifact(row: Row) -> Artifact:
    meta = json.loads(row["meta"] or "null")
    return Artifact(
        artifact_id=row["artifact_id"],
        kind=row["kind"],
        name=row["name"],
        backend=row["backend"],
        state=row["state"],
        relative_path=row["relative_path"],
        sha256=row["sha256"],
        wanted=meta.get("sha256") if isinstance(meta, dict) else None,
    )
