"""The fold on real databases: exactly once through cuts, crashes, poison and a lost connection in COMMIT."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, insert, select
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from codefyui_core.control.db.tables import run_events, run_metrics, runs
from codefyui_core.control.runs.unit import Unit
from codefyui_core.runs.events import derive, fold_final
from codefyui_core.wire.messages import Rewind


async def running(room, agent):
    run_id = await room.submit(target=agent.name)
    return run_id, await agent.accept(run_id)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("note"), st.integers(1, 5)),
        st.tuples(st.just("deliver"), st.integers(-4, 3)),
        st.tuples(st.just("drop"), st.just(0)),
        st.tuples(st.just("crash"), st.just(0)),
        st.tuples(st.just("late ack"), st.just(0)),
    ),
    max_size=14,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
async def test_a_log_holds_each_event_once_through_any_weather(room, kit, steps):
    agent = room.directory.agents.get("box") or room.agent()
    if not agent.connected:
        await agent.connect()
    run_id, key = await running(room, agent)
    written = 0
    for what, number in [*steps, ("note", 1), ("deliver", 0)]:
        held = agent.spool[key]
        if what == "note":
            agent.note(key, *(kit.event(n=written + i) for i in range(number)))
            written += number
        elif what == "deliver" and agent.connected:
            first = min(max(1, held.acked + 1 + number), len(held.items))
            answer = await agent.deliver(key, first, 3)
            if isinstance(answer, Rewind):
                await agent.deliver(key, answer.position + 1, 3)
        elif what == "late ack":
            held.acked = 0
        elif what in {"drop", "crash"}:
            await (agent.drop() if what == "drop" and agent.connected else room.restart())
            held.acked = (await agent.connect())[run_id].position
    await agent.deliver(key, 1)
    await agent.finish(key)
    log = await room.log(run_id)
    assert [one["payload"]["n"] for one in log if one["type"] == "log"] == list(range(written))
    assert log[-1]["type"] == "execution_complete"


@pytest.mark.point(50)
async def test_poison_is_replaced_in_its_place_and_everything_around_it_stays(room, kit, monkeypatch):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    save = Unit._save_events

    async def refuse(self, change):
        if any('"n":3' in event.text for event in change.events if event.type == "log"):
            raise IntegrityError("INSERT", {}, ValueError("the database dislikes it"))
        await save(self, change)

    monkeypatch.setattr(Unit, "_save_events", refuse)
    await agent.report(key, *(kit.event(n=n) for n in range(6)))
    log = await room.log(run_id)
    assert [one["type"] for one in log] == ["log"] * 3 + ["event_unstorable"] + ["log"] * 2
    assert log[3]["payload"]["seq"] == 5
    assert "dislikes" in log[3]["payload"]["reason"]
    await agent.finish(key)


class Starting(Exception):
    """As the driver tells of a PostgreSQL that isn't ready yet."""

    sqlstate = "57P03"


@pytest.mark.point(46)
@pytest.mark.parametrize("trouble", [OperationalError("INSERT", {}, OSError("disk full")), None])
async def test_an_outage_while_events_are_stored_one_by_one_replaces_none_of_them(
    room, kit, monkeypatch, trouble
):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    save, troubles = Unit._save_events, [0]

    async def refuse(self, change):
        if any('"n":3' in event.text for event in change.events if event.type == "log"):
            troubles[0] += 1
            if troubles[0] == 1:
                raise IntegrityError("INSERT", {}, ValueError("what makes it go one by one"))
            if troubles[0] < 4:
                raise trouble or DBAPIError("INSERT", {}, Starting())
        await save(self, change)

    monkeypatch.setattr(Unit, "_save_events", refuse)
    reporting = asyncio.create_task(agent.report(key, *(kit.event(n=n) for n in range(6))))
    while not reporting.done():
        await asyncio.sleep(0.002)
        await room.time.advance(0.5)
    await reporting
    assert [one["payload"].get("n") for one in await room.log(run_id)] == list(range(6))
    await agent.finish(key)


ODD = [
    {"text": "nul \0 inside"},
    {"text": "lone \ud800 half"},
    {"text": "snow \u2603"},
    {"big": 2**80},
    {"deep": {"a": [1, {"b": None}]}},
    {"nul \0 key": 1},
]


async def test_odd_payloads_read_the_same_from_both_databases(room, kit):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    await agent.report(key, *(kit.event("log", **payload) for payload in ODD))
    await agent.report(key, kit.event("x" * 100), kit.event("nul\0"))
    log = await room.log(run_id)
    assert [one["payload"] for one in log[: len(ODD)]] == ODD
    assert [one["type"] for one in log[len(ODD) :]] == ["event_unstorable"] * 2


async def test_a_busy_database_holds_the_ack_back_and_loses_nothing(room, kit, monkeypatch):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    begin = room.database.begin
    failures = 3

    @asynccontextmanager
    async def busy():
        nonlocal failures
        if failures:
            failures -= 1
            raise OperationalError("BEGIN", {}, Exception("database is locked"))
        async with begin() as connection:
            yield connection

    monkeypatch.setattr(room.database, "begin", busy)
    delivering = asyncio.create_task(agent.report(key, kit.event(n=1)))
    await kit.until(lambda: not room.service.writable)
    while not delivering.done():
        await asyncio.sleep(0.002)
        await room.time.advance(0.5)
    assert (await delivering).seq == 2
    assert room.service.writable
    assert await room.types(run_id) == ["log"]


@pytest.mark.point(46)
async def test_a_database_that_stays_away_is_told_to_the_line_as_not_now(room, kit, monkeypatch):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    begin = room.database.begin

    @asynccontextmanager
    async def away():
        raise OperationalError("BEGIN", {}, Exception("disk I/O error"))
        yield

    monkeypatch.setattr(room.database, "begin", away)
    assert await room.in_time(agent.report(key, kit.event(n=1))) is None
    monkeypatch.setattr(room.database, "begin", begin)
    await room.in_time(agent.deliver(key, 2))
    assert await room.types(run_id) == ["log"]


@pytest.mark.point(14)
async def test_a_commit_whose_outcome_is_unknown_is_read_again(room, kit, monkeypatch):
    """The commit succeeds and its connection is lost before the answer."""
    agent = await room.worker()
    run_id, key = await running(room, agent)
    begin = room.database.begin
    lose = True

    @asynccontextmanager
    async def losing():
        nonlocal lose
        async with begin() as connection:
            yield connection
        if lose:
            lose = False
            raise OperationalError("COMMIT", {}, Exception("server closed the connection"))

    monkeypatch.setattr(room.database, "begin", losing)
    assert (await room.in_time(agent.report(key, kit.event(n=1), kit.event(n=2)))).seq == 3
    assert await room.types(run_id) == ["log", "log"]
    lose = True
    await room.in_time(room.submit(target="any", device="cuda"))
    assert (await room.service.list(("queued",)))["total"] == 1


async def test_decisions_of_many_runs_share_a_commit(room, kit):
    agent = await room.worker(devices=tuple(kit.device(f"cuda:{n}") for n in range(6)))
    keys = [(await running_on(room, agent, f"cuda:{n}"))[1] for n in range(6)]
    commits = room.service.committed()[2]
    await asyncio.gather(*(agent.report(key, kit.event(n=1)) for key in keys))
    assert room.service.committed()[2] - commits < len(keys)


async def running_on(room, agent, device):
    run_id = await room.submit(target=agent.name, device=device)
    return run_id, await agent.accept(run_id)


async def test_one_decision_that_fails_takes_nothing_else_with_it(room, kit):
    agent = await room.worker()
    run_id, key = await running(room, agent)

    async def wrong(unit):
        raise ValueError("a bug")

    results = await asyncio.gather(
        room.service.writer.run(wrong), agent.report(key, kit.event(n=1)), return_exceptions=True
    )
    assert isinstance(results[0], ValueError)
    assert results[1].seq == 2
    assert await room.types(run_id) == ["log"]


async def test_derived_rows_are_what_a_replay_of_the_log_makes(room, kit):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    points = [[{"name": f"m{n % 3}", "value": n / 7, "step": n, "node_id": "n"}] * 2 for n in range(20)]
    await agent.report(key, *(kit.event("metric", points=one) for one in points))
    await agent.finish(key)
    before = await room.service.metrics(run_id)
    row = await room.row(run_id)
    async with room.database.begin() as connection:
        events = (await connection.execute(select(run_events).order_by(run_events.c.cursor))).all()
        await connection.execute(delete(run_metrics))
        final = None
        for event in events:
            derived = derive(event.type, json.loads(event.payload))
            final = fold_final(final, derived.metrics)
            for metric in derived.metrics:
                values = {
                    name: getattr(metric, name)
                    for name in ("i", "name", "value", "special", "step", "node_id")
                }
                await connection.execute(
                    insert(run_metrics).values(run_id=run_id, cursor=event.cursor, ts=event.ts, **values)
                )
    assert await room.service.metrics(run_id) == before
    assert row["final_metrics"] == final


@pytest.mark.parametrize("column", ["document", "options"])
async def test_secrets_are_nowhere_in_the_database(room, kit, column, tmp_path):
    agent = await room.worker()
    run_id = await room.submit(kit.secret_graph("hush-4711"), target="box")
    key = await agent.got(run_id)
    (assign,) = agent.assigns(run_id)
    assert "hush-4711" in json.dumps(assign.graph)
    await agent.report(key, agent.accepted())
    await agent.finish(key)
    async with room.database.read() as connection:
        stored = await connection.scalar(select(runs.c[column]).where(runs.c.id == run_id))
    assert "hush-4711" not in json.dumps(stored)
    assert room.service.board.secrets == {}
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"hush-4711" not in path.read_bytes()


@pytest.mark.point(46)
async def test_a_full_disk_is_told_as_such_and_nothing_waits_for_ever(room, monkeypatch, kit):
    begin = room.database.begin

    @asynccontextmanager
    async def full():
        raise OperationalError("INSERT", {}, Exception("database or disk is full"))
        yield

    monkeypatch.setattr(room.database, "begin", full)
    with pytest.raises(kit.error) as refused:
        await room.in_time(room.submit(target="any"))
    assert refused.value.code == "storage.full"
    await room.in_time(room.service.stop(keep=False, grace_s=5))
    monkeypatch.setattr(room.database, "begin", begin)


async def test_a_fault_of_every_transaction_reaches_everybody_who_asked(room, monkeypatch):
    begin = room.database.begin

    @asynccontextmanager
    async def broken():
        raise RuntimeError("no such table")
        yield

    monkeypatch.setattr(room.database, "begin", broken)
    with pytest.raises(RuntimeError):
        await room.submit(target="any")
    monkeypatch.setattr(room.database, "begin", begin)
    await room.submit(target="any")
