"""The same rows through the bare SQLite driver: same schema, same pragmas, one commit a batch."""

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
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
                (run, cursor + by, attempt, seq if seq is None else seq + by, *rest)
                for run, cursor, attempt, seq, *rest in self.events
            ],
            [(run, cursor + by, *rest) for run, cursor, *rest in self.metrics],
        )


def batches(file: Path, run_id: str, first: int, count: int, size: int) -> list[Batch]:
    """What a database got from ``count`` events of a run at cursor ``first`` and after, ``size`` a batch."""
    with closing(sqlite3.connect(file)) as database:
        return [_batch(database, (run_id, at, at + size - 1)) for at in range(first, first + count, size)]


def _batch(database: sqlite3.Connection, span: tuple[str, int, int]) -> Batch:
    where = "WHERE run_id = ? AND cursor BETWEEN ? AND ?"
    events = f"SELECT run_id, cursor, attempt, seq, type, payload, ts FROM run_events {where}"
    metrics = f"SELECT run_id, cursor, i, node_id, name, step, value, special, ts FROM run_metrics {where}"
    return Batch(database.execute(events, span).fetchall(), database.execute(metrics, span).fetchall())


def empty_copy(source: Path, copy: Path) -> sqlite3.Connection:
    """A database with the schema of ``source`` and its run alone."""
    with closing(sqlite3.connect(source)) as original:
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


@dataclass(slots=True)
class Rounds:
    """The same batches again and again, each time at later cursors."""

    database: sqlite3.Connection
    batches: Sequence[Batch]
    count: int
    turn: int = -1

    def insert(self) -> float:
        """Seconds of one round."""
        self.turn += 1
        # Positions are ahead of cursors by the items that are no events.
        moved = [batch.moved(self.turn * 2 * self.count) for batch in self.batches]
        began = time.perf_counter()
        for batch in moved:
            insert(self.database, batch)
        return time.perf_counter() - began
