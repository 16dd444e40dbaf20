"""Messages of any size: in pieces, or refused once; never sent again and again."""

import json

import pytest

from codefyui_core.control.runs.documents import MAX_SENT_BYTES
from codefyui_core.wire import codec
from codefyui_core.wire.limits import FRAME_BYTES, MIB
from codefyui_core.wire.messages import Assign, CatalogMessage


@pytest.fixture
async def agent(room):
    return await room.online((await room.enroll())["credential"])


def assignment(size):
    graph = {"pad": "x" * (size - len('{"pad":""}'))}
    known = {"attempt": 1, "lease": "l" * 32, "db_id": "d" * 32, "options": {}, "devices": ("cpu",)}
    return Assign(run_id="r1", graph=graph, **known)


@pytest.mark.parametrize("size", [MIB, 4 * MIB, MAX_SENT_BYTES])
async def test_an_assignment_that_may_be_submitted_arrives(room, agent, size):
    sent = assignment(size)
    room.service.live()[0].send(sent)
    assembler, whole = codec.Assembler(), None
    while whole is None:
        frame = await agent.receive("assign", "part")
        assert len(json.dumps(frame)) <= FRAME_BYTES + 1024
        whole = (
            json.dumps(frame)
            if frame["t"] == "assign"
            else assembler.add(codec.decode(json.dumps(frame), codec.FROM_CONTROL))
        )
    assert codec.decode(whole, codec.FROM_CONTROL) == sent


@pytest.mark.parametrize("size", [18 * MIB])
async def test_one_that_can_not_be_sent_fails_its_run_and_keeps_the_line(room, agent, size):
    session = room.service.live()[0]
    session.send(assignment(size))
    (told,) = await room.until(lambda: room.desk.named("refused"))
    assert (told[1].run_id, told[1].code, told[1].retry) == ("r1", "too_large", False)
    assert "more than a message may have" in told[1].detail
    for number in range(1, 13):  # nothing waits for an answer of the agent
        await agent.send(t="beat", spool_bytes=number)
        await room.until(lambda number=number: session.spool_bytes == number)
        await room.manual.advance(5)
    assert room.service.live() == (session,)


@pytest.mark.parametrize("count", [12_000, 50_000])
async def test_a_catalog_of_1_to_4_mib_is_taken_in_once(room, count):
    credential = (await room.enroll("other", nonce="2" * 32))["credential"]
    agent = await room.connect(credential)
    assert (await agent.hello(name="other", catalog_hash="big"))["want_catalog"]
    await agent.send(t="report", storage={})
    types = {f"Type{number:012d}": "f" * 64 for number in range(count)}
    for frame in codec.frames(CatalogMessage(hash="big", types=types), "p1"):
        await agent.socket.send_str(frame.decode())
    await room.until(lambda: room.desk.named("welcomed"))
    assert len(room.service.live()[0].node_types) == count


async def test_parts_over_the_limit_are_answered_bad_and_the_line_stays(room, agent):
    piece = {"id": "p", "word": "catalog", "count": 2, "bytes": 64 * MIB, "sha256": "0" * 64, "data": "eA=="}
    for index in range(2):
        await agent.send(t="part", index=index, **piece)
        assert (await agent.receive("bad"))["t"] == "bad"
    await agent.send(t="beat", spool_bytes=9)
    await room.until(lambda: room.service.live()[0].spool_bytes == 9)
