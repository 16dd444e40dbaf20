"""An agent whose control plane was updated finishes what it has, and then stops."""

import logging

import pytest

MISMATCH = "version mismatch: worker 1.2.3, control plane 9.9.9"


@pytest.fixture(autouse=True)
def said(caplog):
    caplog.set_level(logging.INFO)
    return caplog


async def begin(line, run_id="r1"):
    number = len(line.starter.processes)
    stored = await line.control.assign(run_id)
    process = await line.starter.process(number)
    await process.went
    return stored, process


async def update(line, *, reason="restart"):
    """A planned restart with another version."""
    await line.control.stop(reason)
    line.control.version = "9.9.9"
    await line.control.start()
    return await line.control.online()


def texts(stored):
    return [item.payload["lines"][0] for item in stored.items if item.type == "log"]


@pytest.mark.spec("version/agent-stops-not-retries", "version/mismatch-exit-is-error")
@pytest.mark.point(34)
async def test_its_runs_end_well_with_all_their_events_and_then_it_stops(line, said):
    agent = await line.agent()
    first, one = await begin(line)
    second, two = await begin(line, "r2")
    one.log("before")
    await line.until(lambda: texts(first) == ["before"])
    link = await update(line)
    assert not link.accepting
    for number in range(50):
        one.log(str(number))
    one.end("succeeded")
    await line.until(lambda: first.final)
    assert not agent.task.done()
    two.end("failed", error="loss is nan")
    assert await agent.ended() == 2
    assert texts(first) == ["before", *(str(number) for number in range(50))]
    assert (first.final, second.final) == ("succeeded", "failed")
    assert one.stops == two.stops == []
    assert line.spools() == []
    assert MISMATCH in said.text
    refused = (await line.control.service.list())["refused"]
    assert [row["reason"] for row in refused] == [MISMATCH]


async def test_it_says_that_it_only_finishes_its_runs(line, said):
    await line.agent()
    await begin(line)
    await update(line)
    await line.until(lambda: "only finishes its runs" in said.text)


async def test_lines_that_drop_and_a_second_restart_change_nothing(line):
    agent = await line.agent()
    stored, process = await begin(line)
    await update(line)
    line.control.cut()
    process.log("one")
    await line.until(lambda: texts(stored) == ["one"])
    await line.control.crash()
    process.log("two")
    await line.control.start()
    await line.until(lambda: texts(stored) == ["one", "two"])
    process.end("succeeded")
    assert await agent.ended() == 2
    assert stored.final == "succeeded"


async def test_a_stop_by_a_user_is_obeyed(line):
    agent = await line.agent()
    stored, process = await begin(line)
    await update(line)
    await line.control.ask_stop()
    await line.until(lambda: process.stops)
    process.end("stopped")
    assert await agent.ended() == 2
    assert stored.items[-1].payload["stop_reason"] == "user"


async def test_a_removed_worker_is_told_so_and_not_its_version(line, said):
    agent = await line.agent()
    _, process = await begin(line)
    await update(line)
    await line.control.service.remove("box")
    await line.until(lambda: process.stops)
    process.end("stopped")
    assert await agent.ended() == 2
    assert "revoked" in said.text


async def test_an_updated_agent_delivers_the_end_of_what_its_killed_predecessor_ran(line, said):
    agent = await line.agent()
    stored, process = await begin(line)
    process.log("one")
    await line.until(lambda: texts(stored) == ["one"])
    await agent.kill()
    again = await line.agent(version="2.0.0")
    assert await again.ended() == 2
    assert stored.items[-1].payload["stop_reason"] == "agent_restarted"
    assert "version mismatch: worker 2.0.0, control plane 1.2.3" in said.text
