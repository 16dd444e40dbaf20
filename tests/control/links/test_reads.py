"""Recorded outputs are asked for over a worker's line: in parts, a few at once, for a bounded time."""

import asyncio
import base64

import pytest

from codefyui_core.errors import CodefyError
from codefyui_core.outputs import Question, What
from codefyui_core.wire.limits import READS

QUESTION = Question(what=What.VALUE, node="n", port="x", slice="0,:", max_elements=9)
CODES = {"outputs.not_found", "outputs.too_large", "request.invalid"}


class Reading:
    """One connected worker, by hand, and what the control plane asks of it."""

    def __init__(self, room, agent, worker_id):
        self.room = room
        self.agent = agent
        self.worker_id = worker_id
        self.asked = []

    def ask(self, question=QUESTION, timeout_s=60):
        task = asyncio.create_task(self.room.service.reads(self.worker_id).ask("r1", question, timeout_s))
        self.asked.append(task)
        return task

    async def read(self):
        return await self.agent.receive("read")

    async def reply(self, read, **more):
        await self.agent.send(t="read_reply", id=read["id"], **more)


@pytest.fixture
async def reading(room):
    enrolled = await room.enroll()
    agent = await room.online(enrolled["credential"])
    made = Reading(room, agent, enrolled["worker_id"])
    yield made
    for task in made.asked:
        task.cancel()
    await asyncio.gather(*made.asked, return_exceptions=True)


def encoded(data):
    return base64.b64encode(data).decode()


async def refusal(task):
    with pytest.raises(CodefyError) as refused:
        await asyncio.wait_for(task, 10)
    return refused.value


async def test_an_answer_is_put_together_from_its_parts(reading):
    task = reading.ask()
    read = await reading.read()
    asked = {"run_id": "r1", "what": "value", "node": "n", "port": "x", "slice": "0,:", "max_elements": 9}
    assert {name: read[name] for name in asked} == asked
    await reading.reply(read, part=0, last=False, data={"kind": "tensor"}, bytes=encoded(b"ab"))
    await reading.reply(read, part=1, bytes=encoded(b"c"))
    answer = await asyncio.wait_for(task, 10)
    assert (answer.head, answer.body) == ({"kind": "tensor"}, b"abc")


@pytest.mark.parametrize("code", sorted(CODES))
async def test_what_the_worker_refuses_is_told_with_its_code(reading, code):
    task = reading.ask()
    await reading.reply(await reading.read(), error="not so", code=code)
    error = await refusal(task)
    assert (error.code, error.message) == (code, "not so")


@pytest.mark.parametrize(
    "broken",
    [{"part": 1}, {"bytes": "%%"}, {"error": "odd", "code": "no.such"}, {"error": "no code"}],
    ids=["order", "base64", "code", "none"],
)
async def test_an_answer_that_can_not_be_read_ends_the_read(reading, broken):
    task = reading.ask()
    await reading.reply(await reading.read(), **broken)
    assert (await refusal(task)).code == "storage.corrupt"


@pytest.mark.spec("setting/worker-output-fetch-timeout")
async def test_a_worker_that_does_not_answer_is_given_up_after_the_timeout_and_told_so(reading):
    task = reading.ask(timeout_s=2)
    read = await reading.read()
    await reading.room.manual.advance(4)
    error = await refusal(task)
    assert error.code == "outputs.timeout"
    assert "CODEFYUI_WORKER_OUTPUT_FETCH_TIMEOUT_S" in error.message
    cancel = await reading.read()
    assert (cancel["id"], cancel["what"]) == (read["id"], "cancel")
    await reading.reply(read, bytes=encoded(b"late"))
    next_task = reading.ask()
    await reading.reply(await reading.read(), bytes=encoded(b"next"))
    assert (await asyncio.wait_for(next_task, 10)).body == b"next"


async def test_who_leaves_has_the_read_cancelled_at_the_worker(reading):
    task = reading.ask()
    read = await reading.read()
    task.cancel()
    cancel = await reading.read()
    assert (cancel["id"], cancel["what"]) == (read["id"], "cancel")


@pytest.mark.spec("limits/captures-need-connection")
async def test_a_line_that_breaks_ends_its_reads_at_once(reading):
    task = reading.ask()
    await reading.read()
    await reading.agent.close()
    error = await refusal(task)
    assert error.code == "outputs.away"
    assert "gpu-box" in error.message
    await reading.room.until(lambda: reading.room.service.reads(reading.worker_id) is None)


async def test_only_so_many_reads_are_under_way_and_the_rest_wait_for_their_turn(reading):
    tasks = [reading.ask() for _ in range(READS + 1)]
    reads = [await reading.read() for _ in range(READS)]
    await reading.agent.send(t="beat", n=0)
    assert len({read["id"] for read in reads}) == READS
    assert len(reading.room.service.reads(reading.worker_id)._asked) == READS
    await reading.reply(reads[0], bytes=encoded(b"1"))
    last = await reading.read()
    for read in (*reads[1:], last):
        await reading.reply(read, bytes=encoded(b"1"))
    answers = await asyncio.wait_for(asyncio.gather(*tasks), 10)
    assert [answer.body for answer in answers] == [b"1"] * (READS + 1)


async def test_items_are_acknowledged_while_an_answer_comes(reading):
    task = reading.ask()
    read = await reading.read()
    await reading.reply(read, part=0, last=False, bytes=encoded(b"a"))
    item = {"kind": "event", "type": "log", "payload": {}, "ts": 1}
    await reading.agent.send(t="items", run_id="r1", attempt=1, lease="l", first=1, items=[item])
    assert (await reading.agent.receive("ack"))["acks"][0]["seq"] == 1
    await reading.reply(read, part=1, bytes=encoded(b"b"))
    assert (await asyncio.wait_for(task, 10)).body == b"ab"
