"""Opening a database: its layout, its lock, and what is remembered of each start."""

import os
from contextlib import suppress

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import insert, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from codefyui_core.control.db.database import Database
from codefyui_core.control.db.engines import make_engines
from codefyui_core.control.db.migrate import migrate, newest
from codefyui_core.control.db.tables import metadata, plugin_state, run_events, runs
from codefyui_core.control.db.upgrade import configuration, upgrade
from codefyui_core.errors import CodefyError, StartProblem
from codefyui_core.testing.clock import ManualClock


def differences(connection):
    context = MigrationContext.configure(connection, opts={"compare_type": False})
    return compare_metadata(context, metadata)


async def test_an_empty_database_gets_what_the_tables_say(database):
    async with database.begin() as connection:
        assert await connection.run_sync(differences) == []
        version = text("SELECT version_num FROM alembic_version")
        assert list(await connection.scalars(version)) == [newest()]


async def test_migrations_make_what_the_tables_say(database_url):
    engines = make_engines(database_url)
    if engines.file is not None:
        engines.file.parent.mkdir(parents=True)
    try:
        async with engines.writing.begin() as connection:
            await connection.run_sync(upgrade)
            assert await connection.run_sync(differences) == []
        await migrate(engines.writing)
    finally:
        await engines.dispose()


def test_the_newest_revision_is_the_head_of_the_migrations():
    assert ScriptDirectory.from_config(configuration()).get_heads() == [newest()]


async def test_a_database_without_a_version_is_migrated_from_the_start(database_url, tmp_path):
    """Others may have tables in a PostgreSQL database."""
    engines = make_engines(database_url)
    if engines.file is not None:
        engines.file.parent.mkdir(parents=True)
    async with engines.writing.begin() as connection:
        await connection.execute(text("CREATE TABLE somebody_elses (id INTEGER)"))
    await engines.dispose()
    database = await Database.open(database_url, user_data=tmp_path, clock=ManualClock())
    async with database.begin() as connection:
        found = await connection.run_sync(differences)
    await database.aclose()
    assert [(what, table.name) for what, table in found] == [("remove_table", "somebody_elses")]


async def test_each_start_is_counted_before_anything_else(database_url, tmp_path):
    seen = []
    for word in ("stop", "keep", "clean"):
        database = await Database.open(database_url, user_data=tmp_path, clock=ManualClock())
        seen.append((database.db_id, database.epoch, database.shutdown_was))
        await database.mark_shutdown(word)
        await database.aclose()
    assert len({db_id for db_id, _, _ in seen}) == 1
    assert [epoch for _, epoch, _ in seen] == [1, 2, 3]
    assert [was for _, _, was in seen] == ["running", "stop", "keep"]


async def test_a_second_server_on_the_same_data_is_refused_and_names_the_first(
    database, database_url, tmp_path
):
    with pytest.raises(CodefyError, match=rf"pid {os.getpid()}") as refused:
        await Database.open(database_url, user_data=tmp_path, clock=ManualClock())
    assert refused.value.code == "server.busy"
    async with database.begin() as connection:
        assert await connection.scalar(text("SELECT 1")) == 1


async def test_the_lock_is_free_again_once_the_first_is_closed(database_url, tmp_path):
    first = await Database.open(database_url, user_data=tmp_path, clock=ManualClock())
    await first.aclose()
    second = await Database.open(database_url, user_data=tmp_path, clock=ManualClock())
    assert second.epoch == 2
    await second.aclose()


async def test_a_database_of_a_newer_version_is_left_alone(database_url, tmp_path):
    database = await Database.open(database_url, user_data=tmp_path, clock=ManualClock())
    async with database.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    await database.aclose()
    with pytest.raises(StartProblem, match="another version"):
        await Database.open(database_url, user_data=tmp_path, clock=ManualClock())


@pytest.mark.parametrize(
    "url", ["mysql+aiomysql://x@h/d", "sqlite+aiosqlite://", "sqlite+aiosqlite:///:memory:"]
)
async def test_other_databases_are_refused_in_words(url, tmp_path):
    with pytest.raises((StartProblem, ModuleNotFoundError)):
        await Database.open(url, user_data=tmp_path, clock=ManualClock())


@pytest.mark.point(16)
async def test_sqlite_keeps_acknowledged_commits_through_a_power_loss(database):
    if database.dialect != "sqlite":
        async with database.read() as connection:
            assert await connection.scalar(text("SHOW synchronous_commit")) == "on"
        return
    async with database.begin() as connection:
        pragmas = {
            name: await connection.scalar(text(f"PRAGMA {name}"))
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 5000}


def document(key, value=b"1"):
    return insert(plugin_state).values(plugin="p", key=key, value=value, sealed=False)


async def fail_after(opening, *statements):
    async with opening as connection:
        for statement in statements:
            await connection.execute(statement)
        raise RuntimeError


async def test_a_failed_block_leaves_nothing(database):
    with pytest.raises(RuntimeError):
        await fail_after(database.begin(), document("k"))
    async with database.read() as connection:
        assert (await connection.execute(select(plugin_state))).all() == []


async def test_a_savepoint_takes_back_its_own_part_alone(database):
    async def nested(connection):
        async with connection.begin_nested():
            await connection.execute(document("b"))
            await connection.execute(document("a", b"2"))

    async with database.begin() as connection:
        await connection.execute(document("a"))
        with pytest.raises(IntegrityError):
            await nested(connection)
    async with database.read() as connection:
        rows = (await connection.execute(select(plugin_state.c.key, plugin_state.c.value))).all()
    assert [tuple(row) for row in rows] == [("a", b"1")]


async def test_readers_see_what_is_committed_while_somebody_writes(database):
    async with database.begin() as connection:
        await connection.execute(document("a"))
        async with database.read() as reader:
            assert (await reader.execute(select(plugin_state))).all() == []


async def test_text_that_no_database_holds_reads_the_same_from_both(database):
    odd = "nul \0, lone \ud800, snow \u2603, \U0001f600"
    values = {
        "id": "r" * 32,
        "queue_seq": 1,
        "name": odd,
        "status": "queued",
        "document": {"odd": odd},
        "has_secrets": False,
        "options": {},
        "target": {},
        "device": "cpu",
        "queue_key": "server/cpu",
        "created_at": 1,
    }
    async with database.begin() as connection:
        await connection.execute(insert(runs).values(values))
        event = {"run_id": "r" * 32, "cursor": 1, "type": "log", "payload": '"\\u0000\\ud800"', "ts": 1}
        await connection.execute(insert(run_events).values(event))
    async with database.read() as connection:
        row = (await connection.execute(select(runs.c.name, runs.c.document))).one()
        payload = await connection.scalar(select(run_events.c.payload))
    assert row.name == "nul \\u0000, lone \\ud800, snow \u2603, \U0001f600"
    assert row.document == {"odd": odd}
    assert payload == '"\\u0000\\ud800"'


async def test_a_reader_that_writes_changes_nothing(database):
    """SQLite refuses it at once; PostgreSQL drops it, as nobody commits it."""
    statement = document("a")
    with suppress(DBAPIError):
        async with database.read() as connection:
            await connection.execute(statement)
    async with database.read() as connection:
        assert (await connection.execute(select(plugin_state))).all() == []
