"""Remove and re-key end runs in the transaction that changes the credential: all of it happens, or nothing."""

import asyncio
import logging
from contextlib import asynccontextmanager, contextmanager

import pytest
from sqlalchemy import event, select
from sqlalchemy.exc import OperationalError

from codefyui_core.control.db import tables
from codefyui_core.control.links import WorkerService
from codefyui_core.control.links.secrets import digest
from codefyui_core.errors import CodefyError
from codefyui_core.loading import Registry
from codefyui_core.settings import ControlSettings, Install
from codefyui_core.wire.messages import VerdictKind

WATCHED = (
    tables.workers,
    tables.revoked_credentials,
    tables.enrollment_tokens,
    tables.enrollments,
    tables.runs,
    tables.attempts,
    tables.run_events,
)
MOST = 60
"""Statements of such a transaction, at most."""
pytestmark = pytest.mark.spec("remove/running-runs-interrupted", "rekey/use-invalidates-old-credential")


class Wrong(Exception):
    """A fault that no repetition cures."""


class Scene:
    """Runs and links over one database. Each worker executes one run, and another waits for it."""

    def __init__(self, room):
        self.room = room
        self.links = None
        self.tokens = {}

    async def open(self):
        if self.room.service is None:
            await self.room.open(run_retention_keep_last=-1)
        self.links = WorkerService(
            db=self.room.database,
            desk=self.room.service,
            registry=Registry.of(infos=(), contributions=(), plane=None),
            catalog=lambda: None,
            settings=ControlSettings(),
            install=Install.find(environ={"CODEFYUI_USER_DATA_DIR": str(self.room.folder)}),
            clock=self.room.clock,
            log=logging.getLogger("test.links"),
            version="1.2.3",
        )
        return self

    async def worker(self, name="box"):
        agent = await self.room.worker(name)
        run_id = await self.room.submit(target=name)
        await agent.accept(run_id)
        agent.accepting = False
        waiting = await self.room.submit(target=name)
        self.tokens[name] = (await self.links.make_token(worker=name, control_url="http://cp"))["token"]
        await self.room.settled()
        return agent, run_id, waiting

    async def order(self, what, name="box"):
        if what == "remove":
            return await self.links.remove(name)
        return await self.links.enroll(self.tokens[name], name, "n" * 32, "m" * 32, "linux", "10.0.0.9")

    async def rows(self):
        async with self.room.database.read() as connection:
            found = {table.name: (await connection.execute(select(table))).all() for table in WATCHED}
        return {name: sorted(map(repr, rows)) for name, rows in found.items()}

    async def check_done(self, what, name, run_id, waiting):
        """All that belongs to it is stored."""
        row = await self.room.row(run_id)
        cause = {"remove": "refused", "rekey": "credentials"}[what]
        assert (row["status"], row["cause"]) == ("interrupted", cause)
        assert await self.room.status(waiting) == {"remove": "failed", "rekey": "queued"}[what]
        async with self.room.database.read() as connection:
            settled = await connection.scalar(select(tables.runs.c.settled).where(tables.runs.c.id == run_id))
            gone = select(tables.revoked_credentials.c.why).where(
                tables.revoked_credentials.c.hash == f"id-{name}"
            )
            why = await connection.scalar(gone)
            bound = tables.enrollment_tokens.c.worker == name
            token = (await connection.execute(select(tables.enrollment_tokens).where(bound))).one()
        assert (settled, why) == {"remove": (True, "removed"), "rekey": (False, "rekeyed")}[what]
        assert (token.revoked, token.uses_left) == {"remove": (True, 1), "rekey": (False, 0)}[what]
        assert (await self.links.by_name(name) is None) == (what == "remove")

    @contextmanager
    def at_statement(self, number, act):
        """``act`` is called before that statement of the writer's. The list: those seen."""
        engine, seen = self.room.database._engines.writing.sync_engine, []
        writing = self.room.service.writer._task

        def before(connection, cursor, statement, parameters, context, many):
            if asyncio.current_task() is writing:
                seen.append(statement)
                if len(seen) == number:
                    act()

        event.listen(engine, "before_cursor_execute", before)
        try:
            yield seen
        finally:
            event.remove(engine, "before_cursor_execute", before)


@pytest.fixture
async def scene(closed_room):
    return await Scene(closed_room).open()


def fails(error):
    def act():
        raise error

    return act


def outage():
    return OperationalError("UPDATE", {}, ValueError("the database went away"))


ORDERS = pytest.mark.parametrize(
    "what",
    [pytest.param("remove", marks=pytest.mark.point(35)), pytest.param("rekey", marks=pytest.mark.point(36))],
)


@ORDERS
async def test_an_error_at_any_statement_undoes_all_of_it(scene, what):
    _, run_id, waiting = await scene.worker()
    before = await scene.rows()
    for number in range(2, MOST):  # the first one is the writer's own look at the epoch
        with scene.at_statement(number, fails(Wrong())) as seen:
            try:
                answer = await scene.order(what)
            except Wrong:
                assert await scene.rows() == before, seen[-1]
                continue
        break
    assert len(seen) < number, "the fault came behind the last statement"
    assert number > 8, "each of its statements was tried"
    assert answer
    await scene.check_done(what, "box", run_id, waiting)


@ORDERS
@pytest.mark.parametrize("fault", ["outage", "cancellation"])
async def test_an_outage_or_a_caller_that_leaves_at_any_statement_changes_nothing_of_it(scene, what, fault):
    for number in range(1, MOST):
        name = f"box{number}"
        _, run_id, waiting = await scene.worker(name)
        asking = asyncio.ensure_future(scene.order(what, name))
        act = asking.cancel if fault == "cancellation" else fails(outage())
        with scene.at_statement(number, act) as seen:
            await scene.room.in_time(asyncio.wait({asking}))
            await scene.room.in_time(scene.links._unbroken.wait(20))
        assert asking.cancelled() == (fault == "cancellation" and len(seen) >= number)
        await scene.check_done(what, name, run_id, waiting)
        if len(seen) < number:
            break
    assert number > 8


@ORDERS
@pytest.mark.parametrize("number", [2, 4, 7])
async def test_a_server_that_is_killed_in_the_middle_leaves_nothing_of_it(scene, what, number):
    agent, run_id, waiting = await scene.worker()
    before = await scene.rows()
    task = scene.room.service.writer._task
    with scene.at_statement(number, task.cancel):
        asking = asyncio.ensure_future(scene.order(what))
        await asyncio.wait({task}, timeout=20)
    assert await scene.rows() == before
    asking.cancel()
    for left in list(scene.links._unbroken._tasks):
        left.cancel()
    await scene.room.restart()
    await scene.open()
    assert (await agent.connect())[run_id].kind is VerdictKind.RESUME
    assert await scene.room.status(waiting) == "queued"
    await scene.order(what)
    await scene.check_done(what, "box", run_id, waiting)


@ORDERS
async def test_a_commit_that_nobody_heard_of_is_found_when_it_is_tried_again(scene, what, monkeypatch):
    agent, run_id, waiting = await scene.worker()
    begin, lost = scene.room.database.begin, []

    @asynccontextmanager
    async def unheard():
        async with begin() as connection:
            yield connection
        if not lost:
            lost.append(True)
            raise outage()

    monkeypatch.setattr(scene.room.database, "begin", unheard)
    answer = await scene.room.in_time(scene.order(what))
    assert lost
    await scene.check_done(what, "box", run_id, waiting)
    if what == "rekey":
        known = await scene.links.authenticate(answer["credential"])
        assert known.id == agent.id
        assert digest(answer["credential"]) != f"id-{agent.name}"


# ---------------------------------------------------------------- beside other things


@asynccontextmanager
async def held_back(room):
    """Decisions queue up behind one that waits, and then come into one transaction."""
    gate, there = asyncio.Event(), asyncio.Event()

    async def wait(unit):
        there.set()
        await gate.wait()

    holding = asyncio.ensure_future(room.service.writer.run(wait))
    await there.wait()
    try:
        yield
    finally:
        gate.set()
        await holding


async def queued(room, count):
    async with asyncio.timeout(20):
        while len(room.service.writer._jobs) < count:
            await asyncio.sleep(0.003)


@ORDERS
@pytest.mark.parametrize("first", ["order", "other"])
@pytest.mark.parametrize("other", ["drop", "hello"])
async def test_a_line_that_comes_or_goes_meanwhile_leaves_the_run_ended(scene, what, other, first):
    agent, run_id, waiting = await scene.worker()
    room = scene.room
    if other == "hello":
        await agent.drop()

    def begin(kind):
        if kind == "order":
            return scene.order(what)
        if other == "drop":
            return agent.drop()
        return room.service.hello(agent.id, agent.incarnation, agent.listed())

    async with held_back(room):
        doing = []
        for count, kind in enumerate((first, "other" if first == "order" else "order"), 1):
            doing.append(asyncio.ensure_future(begin(kind)))
            await queued(room, count)
    await asyncio.gather(*doing)
    await scene.check_done(what, "box", run_id, waiting)
    assert room.board_used() in ({}, {(agent.id, "cpu"): 1})
    again = (await agent.connect())[run_id]
    assert again.kind is (VerdictKind.DISCARD if what == "remove" else VerdictKind.LATE)


@ORDERS
async def test_a_grace_that_ends_meanwhile_changes_nothing_of_it(scene, what):
    agent, run_id, waiting = await scene.worker()
    await agent.drop()
    await scene.room.pass_time(299)
    async with held_back(scene.room):
        ordering = asyncio.ensure_future(scene.order(what))
        await queued(scene.room, 1)
        await scene.room.pass_time(2)
        await queued(scene.room, 2)
    await ordering
    await scene.room.settled()
    await scene.check_done(what, "box", run_id, waiting)


@pytest.mark.spec("remove/queued-runs-fail")
async def test_a_run_that_is_stored_after_its_worker_was_removed_is_refused(scene, monkeypatch):
    await scene.worker()
    checkout, gate, there = scene.room.service._intake._checkout, asyncio.Event(), asyncio.Event()
    look = checkout.now

    async def slow():
        there.set()
        await gate.wait()
        return await look()

    monkeypatch.setattr(checkout, "now", slow)
    submitting = asyncio.ensure_future(scene.room.submit(target="box"))
    await there.wait()
    before = len((await scene.rows())["runs"])
    await scene.order("remove")
    gate.set()
    with pytest.raises(CodefyError, match="no worker box") as refused:
        await submitting
    assert refused.value.code == "target.unknown"
    assert len((await scene.rows())["runs"]) == before


async def test_a_run_that_is_placed_after_its_worker_was_removed_waits_on(scene, monkeypatch):
    agent, _, _ = await scene.worker()
    room = scene.room
    gate, there = asyncio.Event(), asyncio.Event()
    read = room.service._dispatcher._waiting

    async def slow(run_id):
        there.set()
        await gate.wait()
        return await read(run_id)

    monkeypatch.setattr(room.service._dispatcher, "_waiting", slow)
    agent.accepting = True
    run_id = await room.submit(target="any")
    await there.wait()
    await room.settled()
    async with held_back(room):
        removing = asyncio.ensure_future(scene.order("remove"))
        await queued(room, 1)
        gate.set()
        await queued(room, 2)
        room.directory.links.clear()
    await removing
    await room.settled()
    assert await room.status(run_id) == "queued"
    assert agent.assigns(run_id) == []
    assert room.board_used() == {}
