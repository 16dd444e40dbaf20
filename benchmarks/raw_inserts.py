"""The same rows through the bare SQLite driver: same schema, same pragmas, one commit a batch."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON")
_EVENTS = (
    "INSERT INTO run_events (run_id, cursor, attempt, seq, type, payload, ts) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_METRICS = (
    "INSERT INTO run_metrics (run_id, cursor, i, node_id, name, step, value, special, ts)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one commit."""

    events: Sequence[tuple[Any, ...]]
    metrics: Sequence[tuple[Any, ...]]

    def moved(self, by: int) -> Self:
        """The same rows at later cursors and positions."""
        return type(self)(
            [
                (run, cursor + by, attempt, seq + by, *rest)
                for run, cursor, attempt, seq, *rest in self.events
            ],
            [(run, cursor + by, *rest) for run, cursor, *rest in self.metrics],
        )


def batches(file: Path, first: int, count: int, size: int) -> list[Batch]:
    """What a database got from ``count`` events at cursor ``first`` and after, ``size`` a batch."""
    with sqlite3.connect(file) as database:
        return [_batch(database, start, size) for start in range(first, first + count, size)]


def _batch(database: sqlite3.Connection, start: int, size: int) -> Batch:
    span = (start, start + size - 1)
    events = (
        "SELECT run_id, cursor, attempt, seq, type, payload, ts FROM run_events WHERE cursor BETWEEN ? AND ?"
    )
    metrics = (
        "SELECT run_id, cursor, i, node_id, name, step, value, special, ts FROM run_metrics"
        " WHERE cursor BETWEEN ? AND ?"
    )
    return Batch(database.execute(events, span).fetchall(), database.execute(metrics, span).fetchall())


def empty_copy(source: Path, copy: Path) -> sqlite3.Connection:
    """A database with the schema of ``source`` and its run alone."""
    with sqlite3.connect(source) as original:
        schema = original.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    database = sqlite3.connect(copy, isolation_level=None)
    for (statement,) in schema:
        database.execute(statement)
    database.execute("ATTACH ? AS original", (str(source),))
    database.execute("INSERT INTO runs SELECT * FROM original.runs")
    database.execute("DETACH original")
    for pragma in PRAGMAS:
        database.execute(f"PRAGMA {pragma}")
    return database


def insert(database: sqlite3.Connection, batch: Batch) -> None:
    """One commit."""
    database.execute("BEGIN IMMEDIATE")
    database.executemany(_EVENTS, batch.events)
    database.executemany(_METRICS, batch.metrics)
    database.execute("COMMIT")
