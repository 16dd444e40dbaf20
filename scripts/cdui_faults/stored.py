"""What the database of a stopped server holds, read without any code of the server's."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

    @property
    def closings(self) -> list[str]:
        return [found for found in self.types if found in {*CLOSING.values(), "execution_stopped"}]


def read(database: Path) -> tuple[StoredRun, ...]:
    """All runs, oldest first."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        rows = connection.execute("SELECT * FROM runs ORDER BY queue_seq").fetchall()
        return tuple(_run(connection, row) for row in rows)


def _run(connection: sqlite3.Connection, row: sqlite3.Row) -> StoredRun:
    events = connection.execute(
        "SELECT cursor, type, payload, ts FROM run_events WHERE run_id = ? ORDER BY cursor", (row["id"],)
    ).fetchall()
    counts = connection.execute(
        "SELECT value FROM run_metrics WHERE run_id = ? AND name = 'count' ORDER BY cursor, i", (row["id"],)
    )
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
        attempts=tuple(_attempts(connection, row["id"])),
    )


def _attempts(connection: sqlite3.Connection, run_id: str) -> Iterator[Attempt]:
    found = connection.execute("SELECT * FROM attempts WHERE run_id = ? ORDER BY number", (run_id,))
    for row in found:
        yield Attempt(
            number=row["number"],
            state=row["state"],
            settled=bool(row["settled"]),
            slots_released=bool(row["slots_released"]),
            created_ms=row["created_at"],
        )
