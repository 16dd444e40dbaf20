"""A control plane that acknowledges nothing for a while, and the grace that it alone decides about."""

import asyncio
import json

import pytest

from codefyui_core.clocks import AttentiveClock


async def begin(line):
    stored = await line.control.assign()
    process = await line.starter.process()
    await process.went
    return stored, process


def texts(stored):
    return [item.payload["lines"][0] for item in stored.items if item.type == "log"]


@pytest.mark.spec("drop/grace-read-by-control-plane")
async def test_the_grace_is_the_control_planes_whatever_the_worker_says_of_it(line, monkeypatch):
    monkeypatch.setenv("CODEFYUI_WORKER_RESUME_GRACE_S", "5")
    agent = await line.agent()
    await begin(line)
    (head,) = line.user_data.glob("agent-spool/*/r1.1/head.json")
    assert json.loads(head.read_text())["grace_s"] == 300
    assert not agent.task.done()


@pytest.mark.point(15)
async def test_ninety_seconds_without_an_acknowledgement_resend_nothing_and_store_everything_once(line):
    """The line lives meanwhile: both sides beat on their clocks."""
    manual = line.control.manual
    await line.agent(clock=AttentiveClock(manual))
    stored, process = await begin(line)
    line.desk.gate.clear()
    for number in range(2000):
        process.log(f"{number} " + "x" * 1000)
    await line.until(lambda: process.read == 2000)
    session = line.control.service.live()[0]
    await line.until(lambda: session.waiting_bytes > 0)
    for _ in range(90):
        await manual.advance(1)
        await asyncio.sleep(0.002)
    assert line.control.service.live() == (session,)
    line.desk.gate.set()
    process.end("succeeded")
    await line.until(lambda: stored.final)
    assert [text.split()[0] for text in texts(stored)] == [str(number) for number in range(2000)]
    sent = [first + index for first, count in line.desk.batches for index in range(count)]
    assert sent == list(range(1, stored.position + 1))
    assert len(line.desk.hellos) == 1
    await line.until(lambda: line.spools() == [])
