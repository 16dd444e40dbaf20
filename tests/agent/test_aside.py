"""Spools of other databases and of unknown runs: 30 days, 1 GiB, the oldest go first."""

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.agent.aside import KEEP_S, LIMIT_BYTES, MARK, Aside, Asides, overdue
from codefyui_core.wire.messages import VerdictKind

DAY_S = 24 * 3600.0


class Wall:
    """A wall clock by hand."""

    def __init__(self):
        self.now = 1_800_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def wall():
    return Wall()


@pytest.fixture
def asides(tmp_path, wall):
    return Asides(tmp_path / "spools", tmp_path / "aside", wall=wall)


def spool(tmp_path, name, size=10):
    path = tmp_path / "spools" / name
    path.mkdir(parents=True)
    (path / "0000000001.log").write_bytes(b"x" * size)
    return path


def test_what_was_set_aside_is_deleted_after_30_days_by_the_wall_clock(asides, wall, tmp_path):
    moved = asides.put(spool(tmp_path, "r1.1"))
    stays = spool(tmp_path, "r2.1")
    asides.mark(stays, kept=True)
    wall.now += 29 * DAY_S
    asides.mark(stays, kept=True)  # said again at each welcome: the time counts from the first
    assert asides.overdue() == []
    wall.now += 2 * DAY_S
    assert {one.path for one in asides.overdue()} == {moved, stays}


def test_a_database_that_is_back_gets_its_spool_and_nothing_counts_any_more(asides, wall, tmp_path):
    path = spool(tmp_path, "r1.1")
    asides.mark(path, kept=True)
    asides.mark(path, kept=False)
    wall.now += 40 * DAY_S
    assert asides.overdue() == []
    assert path.is_dir()


def test_one_that_a_run_still_writes_is_left_alone(asides, wall, tmp_path):
    path = spool(tmp_path, "r1.1")
    asides.mark(path, kept=True)
    wall.now += 31 * DAY_S
    assert asides.overdue({path}) == []


def test_an_unreadable_mark_counts_from_when_it_was_written(asides, wall, tmp_path):
    path = spool(tmp_path, "r1.1")
    (path / MARK).write_text("{}")
    wall.now = (path / MARK).stat().st_mtime + KEEP_S + 1
    assert [one.path for one in asides.overdue()] == [path]


asides_ = st.builds(
    Aside,
    path=st.just(None),
    since_s=st.floats(0, 60 * DAY_S),
    size=st.integers(0, LIMIT_BYTES),
)


@given(st.lists(asides_, max_size=12), st.floats(0, 90 * DAY_S))
def test_what_is_left_is_young_enough_small_enough_and_the_newest(found, now):
    gone = overdue(found, now)
    left = [one for one in found if not any(one is other for other in gone)]
    assert all(now - one.since_s <= KEEP_S for one in left)
    assert sum(one.size for one in left) <= LIMIT_BYTES
    assert [one.since_s for one in gone] == sorted(one.since_s for one in gone)
    if left and gone:
        assert max(one.since_s for one in gone) <= min(one.since_s for one in left)


# ---------------------------------------------------------------- a whole agent


@pytest.fixture(autouse=True)
def said(caplog):
    caplog.set_level(logging.INFO)
    return caplog


async def begin(line):
    stored = await line.control.assign()
    process = await line.starter.process()
    await process.went
    return stored, process


def age(path, days):
    """As if it had been set aside so long ago."""
    mark = path / MARK
    since = json.loads(mark.read_text())["since"]
    mark.write_text(json.dumps({"since": since - days * DAY_S}))


@pytest.mark.point(20)
async def test_an_unknown_run_is_set_aside_and_the_log_says_where_and_for_how_long(line, said):
    agent = await line.agent()
    _, process = await begin(line)
    del line.desk.attempts["r1", 1]
    line.control.cut()
    await line.until(lambda: process.stops)
    process.end("stopped")
    where = line.user_data / "agent-spool" / f"127.0.0.1-{line.control.port}.aside" / "r1.1"
    await line.until((where / MARK).is_file)
    await line.until(lambda: f"kept for 30 days in {where}" in said.text)
    assert await agent.stop() == 0
    age(where, 31)
    await line.agent()
    await line.until(lambda: not where.exists())
    await line.until(lambda: f"{where} (" in said.text)


async def test_the_spool_of_a_foreign_database_is_delivered_when_that_is_back(line, said):
    agent = await line.agent()
    stored, process = await begin(line)
    stored.kind = VerdictKind.KEEP
    line.control.cut()
    await line.until(lambda: "belongs to another database" in said.text)
    process.log("one")
    process.end("succeeded")
    spool = line.user_data / "agent-spool"
    await line.until(lambda: any(b'"end"' in path.read_bytes() for path in spool.rglob("*.log")))
    await agent.kill()
    again = await line.agent()
    await line.until(lambda: len(line.desk.hellos) == 3)
    assert stored.kinds == ["accepted"]
    assert await again.stop() == 0
    stored.kind = VerdictKind.RESUME
    await line.agent()
    await line.until(lambda: stored.final)
    assert stored.final == "succeeded"
    await line.until(lambda: line.spools() == [])


async def test_it_is_deleted_after_30_days_without_its_database(line, said):
    agent = await line.agent()
    stored, process = await begin(line)
    stored.kind = VerdictKind.KEEP
    line.control.cut()
    await line.until(lambda: "belongs to another database" in said.text)
    (path,) = line.user_data.glob("agent-spool/*/r1.1")
    process.end("succeeded")
    await line.until(lambda: process.read == 1)
    await agent.kill()
    age(path, 31)
    await line.agent()
    await line.until(lambda: not path.exists())
    await line.control.online()
    assert line.desk.hellos[-1] == ()
