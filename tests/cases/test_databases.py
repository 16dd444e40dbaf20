"""Databases that are busy, locked, away or short of connections: delays, never a loss and never a 500."""

import asyncio
import sqlite3
from contextlib import asynccontextmanager, contextmanager

import pytest
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, OperationalError

from codefyui_core.control.db import engines
from codefyui_core.control.runs import writer as writers

AGENTS = 200
DEADLINE_S = 90


# ---------------------------------------------------------------- somebody else in the file


class Outsider:
    """Another program with the database open, on SQLite: it reads in one long transaction, or holds the write lock."""

    def __init__(self, path):
        self._path = path

    @contextmanager
    def reading(self):
        connection = sqlite3.connect(self._path, isolation_level=None)
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM run_events").fetchone()
        try:
            yield connection
        finally:
            connection.close()

    @contextmanager
    def writing(self):
        connection = sqlite3.connect(self._path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            connection.close()


async def begin(room, places):
    """A run on each place, begun: ``(agent, key)``. What is asked for together is committed together."""
    ids = await asyncio.gather(*(room.submit(target=agent.name, device=device) for agent, device in places))
    made = [(agent, run_id) for (agent, _), run_id in zip(places, ids, strict=True)]
    async with asyncio.timeout(DEADLINE_S):
        while not all(agent.newest(run_id) for agent, run_id in made):
            await asyncio.sleep(0.01)
    keys = await asyncio.gather(*(agent.accept(run_id) for agent, run_id in made))
    return [(agent, key) for (agent, _), key in zip(made, keys, strict=True)]


async def deliver_all(room, agent, key):
    """What an agent does: what wasn't acknowledged is sent again."""
    while agent.spool[key].acked < len(agent.spool[key].items):
        await agent.deliver(key, agent.spool[key].acked + 1, 50)


@asynccontextmanager
async def passing_time(room):
    """Waits of the server pass at once."""

    async def pass_():
        while True:
            await asyncio.sleep(0.005)
            await room.time.advance(0.3)

    passing = asyncio.create_task(pass_())
    try:
        yield
    finally:
        passing.cancel()
        await asyncio.gather(passing, return_exceptions=True)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.spec("drop/no-gap-no-duplicate")
async def test_two_hundred_agents_stream_and_readers_read_beside_an_outside_transaction(room, kit, tmp_path):
    """The outsider also takes the write lock for longer than SQLite waits for it."""
    outsider = Outsider(tmp_path / "db" / "codefyui.db")
    async with room.database.begin() as connection:
        await connection.exec_driver_sql("PRAGMA busy_timeout=20")
    agents = await asyncio.gather(*(room.worker(f"box-{number}") for number in range(AGENTS)))
    made = await begin(room, [(agent, "cpu") for agent in agents])
    done, reads = asyncio.Event(), [0]

    async def read():
        while not done.is_set():
            await room.service.list()
            await room.service.events(made[reads[0] % AGENTS][1][0], 0, 100)
            reads[0] += 1

    with outsider.reading() as outside:
        readers = [asyncio.create_task(read()) for _ in range(4)]
        async with passing_time(room):
            for round_ in range(3):
                for agent, key in made:
                    agent.note(key, *(kit.event(n=10 * round_ + n) for n in range(10)))
                with outsider.writing():
                    sending = [asyncio.create_task(deliver_all(room, *one)) for one in made]
                    await kit.until(lambda: not room.service.writable)
                await asyncio.gather(*sending)
        done.set()
        await asyncio.gather(*readers)
        assert outside.execute("SELECT count(*) FROM run_events").fetchone() == (0,), "it saw one moment"
    assert reads[0] > 0
    for _, (run_id, _number) in made:
        log = await room.log(run_id)
        assert [one["payload"]["n"] for one in log] == list(range(30))


# ---------------------------------------------------------------- errors of the driver


class Told(Exception):
    """As the driver of PostgreSQL tells of an error: by its code."""

    def __init__(self, sqlstate):
        super().__init__(f"the server says {sqlstate}")
        self.sqlstate = sqlstate


def sqlite_says(text):
    return OperationalError("INSERT", {}, sqlite3.OperationalError(text))


def postgresql_says(state):
    return DBAPIError("INSERT", {}, Told(state))


TROUBLES = {
    "SQLITE_BUSY": sqlite_says("database is locked"),
    "SQLITE_PROTOCOL": sqlite_says("locking protocol"),
    "SQLITE_IOERR": sqlite_says("disk I/O error"),
    "SQLITE_FULL": sqlite_says("database or disk is full"),
    "serialization_failure": postgresql_says("40001"),
    "deadlock_detected": postgresql_says("40P01"),
    "connection_failure": postgresql_says("08006"),
    "admin_shutdown": postgresql_says("57P01"),
    "too_many_connections": postgresql_says("53300"),
}


class Injected:
    """Statements of the writer that fail: the next ``left`` ones that begin with ``word``."""

    def __init__(self, engine, error):
        self.error, self.word, self.left = error, "", 0
        event.listen(engine.sync_engine, "before_cursor_execute", self._look)

    def fail(self, word, times):
        self.word, self.left = word, times

    def _look(self, _connection, _cursor, statement, *_more):
        if self.left and statement.lstrip().startswith(self.word):
            self.left -= 1
            raise type(self.error)(statement, {}, self.error.orig)


@pytest.mark.point(46)
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize(
    "word", ["SELECT control", "INSERT INTO run_events", "UPDATE runs"], ids=["begin", "insert", "update"]
)
async def test_a_passing_error_of_the_database_is_tried_again_with_jitter_and_loses_nothing(
    room, kit, monkeypatch, trouble, word
):
    agent = await room.worker()
    run_id = await room.submit(target=agent.name)
    key = await agent.accept(run_id)
    waits = []
    delay = room.clock.delay

    async def recorded(seconds):
        waits.append(seconds)
        await delay(seconds)

    monkeypatch.setattr(room.service.writer._clock, "delay", recorded)
    injected = Injected(room.database._engines.writing, TROUBLES[trouble])
    injected.fail(word, 4)
    reporting = asyncio.create_task(agent.report(key, *(kit.event(n=n) for n in range(5))))
    await kit.until(lambda: injected.left < 4)
    assert agent.spool[key].acked == 1, "nothing is acknowledged that isn't stored"
    answer = await room.in_time(reporting)
    assert (injected.left, answer.seq) == (0, 6)
    assert [one["payload"]["n"] for one in await room.log(run_id)] == list(range(5))
    retries = [seconds for seconds in waits if seconds <= 2.0]
    assert len(retries) >= 4
    assert len(set(retries)) > 1, "waits differ, so that not everybody comes back at once"
    await agent.finish(key)
    assert (await room.row(run_id))["status"] == "succeeded"


async def test_an_agent_is_told_to_keep_its_spool_while_the_database_stays_away(room, kit):
    agent = await room.worker()
    run_id = await room.submit(target=agent.name)
    key = await agent.accept(run_id)
    injected = Injected(room.database._engines.writing, TROUBLES["SQLITE_PROTOCOL"])
    injected.fail("INSERT INTO run_events", 3 * writers.TRIES)
    agent.note(key, kit.event(n=0), kit.event(n=1))
    assert await room.in_time(agent.deliver(key, 2)) is None
    assert (agent.spool[key].acked, len(agent.spool[key].items)) == (1, 3)
    injected.left = 0
    assert (await room.in_time(agent.deliver(key, 2))).seq == 3
    assert [one["payload"]["n"] for one in await room.log(run_id)] == [0, 1]


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_reader_that_meets_a_passing_error_is_told_to_try_again_and_never_of_a_bug(app, trouble):
    run_id = await app.finished()
    injected = Injected(app.plane.db._engines.reading, TROUBLES[trouble])
    for path in ("/api/runs", f"/api/runs/{run_id}", f"/api/runs/{run_id}/events"):
        injected.fail("SELECT", 1_000)  # others may be reading, too
        code = "storage.full" if trouble == "SQLITE_FULL" else "server.busy"
        answer = await app.get(path)
        injected.left = 0
        answer.refused(507 if trouble == "SQLITE_FULL" else 503, code)
        assert (await app.get(path)).status == 200


# ---------------------------------------------------------------- connections

WATCHERS = 500
RUNS = 60


def in_use(room):
    pools = {room.database._engines.writing.sync_engine.pool, room.database._engines.reading.sync_engine.pool}
    held = 1 if room.database.dialect == "postgresql" else 0  # the lock of the only server
    return sum(pool.checkedout() for pool in pools) - held


async def test_watchers_that_wait_hold_no_connection_and_many_ends_at_once_exhaust_none(room, kit):
    """As many pages as a class has, while runs end by the hundred."""
    agent = await room.worker(devices=tuple(kit.device(f"cuda:{n}") for n in range(RUNS)))
    made = [key for _, key in await begin(room, [(agent, f"cuda:{number}") for number in range(RUNS)])]
    seen = {}

    async def watch(number):
        run_id = made[number % RUNS][0]
        seen[number] = [one["type"] async for one in room.service.watch(run_id, 0)]

    async def rows():
        ended = set()
        async for row in room.service.changes():
            if row["status"] == "succeeded":
                ended.add(row["id"])
            if len(ended) == RUNS:
                return

    tabs = [asyncio.create_task(watch(number)) for number in range(WATCHERS)]
    tabs += [asyncio.create_task(rows()) for _ in range(5)]
    followers = room.service._feeds._followers
    await kit.until(lambda: sum(map(len, followers.values())) == WATCHERS and in_use(room) == 0)
    async with passing_time(room):
        await asyncio.gather(*(agent.report(key, kit.event(n=1)) for key in made))
        await asyncio.gather(*(agent.finish(key) for key in made))
        async with asyncio.timeout(60):
            await asyncio.gather(*tabs)
    assert list(seen[0]) == ["log", "execution_complete"]
    assert all(types == seen[0] for types in seen.values())
    await kit.until(lambda: in_use(room) == 0)


async def test_a_connection_of_the_pool_is_not_held_while_a_page_waits_for_news(room, kit):
    agent = await room.worker()
    run_id = await room.submit(target=agent.name)
    key = await agent.accept(run_id)
    polls = [asyncio.create_task(room.service.events(run_id, 0, 10, 60.0)) for _ in range(100)]
    followers = room.service._feeds._followers
    await kit.until(lambda: len(followers.get(run_id, ())) == 100 and in_use(room) == 0)
    await agent.report(key, kit.event(n=1))
    pages = await asyncio.gather(*polls)
    assert {len(page["events"]) for page in pages} == {1}
    assert engines.READERS < 100
