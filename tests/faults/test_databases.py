"""Databases of schedules: others can't write while one is held up, and what was stored outlives a kill."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cdui_faults.databases import Postgres, Sqlite
from cdui_faults.processes import wait_for

WITHIN_S = 20.0
TABLES = "CREATE TABLE control (id INTEGER); CREATE TABLE runs (id INTEGER, name TEXT); "
TABLES += "CREATE TABLE attempts (id INTEGER); CREATE TABLE run_events (id INTEGER)"


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    made = Postgres()
    try:
        made.server.run("psql", "-q", "-h", str(made.server.folder), "-U", "faults", "-c", TABLES, "faults")
        yield made
    finally:
        made.close()


def test_nobody_writes_while_sqlite_is_held(tmp_path: Path) -> None:
    file = tmp_path / "some.db"
    with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("CREATE TABLE runs (id INTEGER, name TEXT)")
        over = threading.Event()
        store = Sqlite(file)
        store.hold(0.5, over.set)
        wait_for(lambda: _is_locked(writer), WITHIN_S, "the lock")
        assert not store.up
        assert over.wait(WITHIN_S)
        writer.execute("INSERT INTO runs VALUES (1, 'a')")
    assert store.up
    assert store.rows("SELECT id FROM runs WHERE name = :name", name="a") == [{"id": 1}]


def _is_locked(writer: sqlite3.Connection) -> bool:
    try:
        writer.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return True
    writer.execute("ROLLBACK")
    return False


@pytest.mark.service
def test_postgresql_can_be_held_up_killed_and_started_again(postgres: Postgres) -> None:
    over = threading.Event()
    postgres.hold(0.5, over.set)
    held = "SELECT count(*) AS n FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted"
    wait_for(lambda: postgres.rows(held)[0]["n"] >= 4, WITHIN_S, "the locks")
    assert not postgres.up
    assert over.wait(WITHIN_S)
    server = postgres.server
    insert = "INSERT INTO runs VALUES (1, 'a')"
    server.run("psql", "-q", "-h", str(server.folder), "-U", "faults", "-c", insert, "faults")
    server.kill()
    assert not server.up
    assert not server.ready()
    server.start()
    wait_for(server.ready, WITHIN_S, "PostgreSQL")
    assert postgres.rows("SELECT id FROM runs WHERE name = :name", name="a") == [{"id": 1}]
