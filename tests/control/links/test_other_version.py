"""An agent of another version that holds runs of ours is let in to finish those, and for nothing else."""

import asyncio

import pytest

from codefyui_core.wire.messages import AckEntry, Assign, HelloAttempt

TEXT = "version mismatch: worker 3.1.0, control plane 1.2.3"
OTHER = "3.1.0"
ITEM = {"kind": "event", "type": "log", "payload": {}, "ts": 1}
R1 = ("r1", 1)


def attempt(run_id="r1"):
    return {"run_id": run_id, "attempt": 1, "lease": "l", "db_id": "d", "phase": "running", "last": 9}


@pytest.fixture
async def credential(room):
    return (await room.enroll())["credential"]


@pytest.fixture
async def finisher(room, credential):
    """Connected with one run that isn't over."""
    room.desk.live = (R1,)
    return await room.online(credential, version=OTHER, attempts=[attempt()])


def records_the_end(room):
    async def end(batch):
        room.desk.live = tuple(key for key in room.desk.live if key[0] != batch.run_id)
        return AckEntry(run_id=batch.run_id, attempt=1, seq=batch.first, recorded="succeeded")

    room.desk.items_answer = end


async def send_end(agent, run_id="r1"):
    await agent.send(t="items", run_id=run_id, attempt=1, lease="l", first=10, items=[ITEM])


async def test_it_is_admitted_and_listed_as_refused_from_the_first_moment(room, finisher):
    assert [one["kind"] for one in finisher.welcome["verdicts"]] == ["resume"]
    (refused,) = await room.refused()
    assert (refused["name"], refused["code"], refused["reason"]) == ("gpu-box", "version_mismatch", TEXT)
    assert refused["address"] == "127.0.0.1"


async def test_its_row_says_what_it_does_and_why_it_gets_nothing(room, finisher):
    row = await room.row()
    assert (row["status"], row["connected"], row["accepting"]) == ("degraded", True, False)
    assert (row["version"], row["status_reason"].startswith(TEXT)) == (OTHER, True)
    assert "finishes its runs" in row["status_reason"]


async def test_the_end_of_its_last_run_is_acknowledged_and_then_it_is_refused(room, finisher):
    records_the_end(room)
    room.desk.live = (R1, ("r2", 1))
    await send_end(finisher)
    assert (await finisher.receive("ack"))["acks"][0]["recorded"] == "succeeded"
    assert room.service.live()
    await send_end(finisher, "r2")
    frames = [await finisher.receive("ack", "refused") for _ in range(2)]
    assert [frame["t"] for frame in frames] == ["ack", "refused"]
    assert (frames[1]["code"], frames[1]["reason"], frames[1]["retry"]) == ("version_mismatch", TEXT, "never")
    assert (await finisher.receive())["code"] == 4001
    await room.until(lambda: not room.service.live())
    assert [row["code"] for row in await room.refused()] == ["version_mismatch"]


async def test_a_beat_does_not_make_it_take_runs(room, finisher):
    session = room.service.live()[0]
    await finisher.send(t="beat", accepting=True, spool_bytes=7)
    await room.until(lambda: session.spool_bytes == 7)
    assert not session.accepting


async def test_a_run_that_is_placed_on_it_all_the_same_goes_back_to_the_queue(room, finisher):
    known = {"attempt": 1, "lease": "x", "db_id": "d", "graph": {}, "options": {}, "devices": ("cpu",)}
    room.service.live()[0].send(Assign(run_id="new", **known))
    (told,) = await room.until(lambda: room.desk.named("refused"))
    assert (told[1].run_id, told[1].retry) == ("new", True)
    assert TEXT in told[1].detail
    records_the_end(room)
    await send_end(finisher)
    assert [(await finisher.receive("ack", "refused", "assign"))["t"] for _ in range(2)] == ["ack", "refused"]


async def test_what_was_assigned_to_it_and_never_arrived_goes_back_to_the_queue(room, credential):
    room.desk.live = (R1, ("never", 2))
    await room.online(credential, version=OTHER, attempts=[attempt()])
    (told,) = await room.until(lambda: room.desk.named("refused"))
    assert (told[1].run_id, told[1].attempt, told[1].retry) == ("never", 2, True)


async def test_a_dropped_line_changes_nothing_while_its_run_is_not_over(room, credential, finisher):
    await finisher.close()
    await room.until(lambda: not room.service.live())
    again = await room.online(credential, version=OTHER, attempts=[attempt()])
    assert [row["count"] for row in await room.refused()] == [2]
    records_the_end(room)
    await send_end(again)
    await again.receive("ack")
    assert (await again.receive("refused"))["reason"] == TEXT


async def test_it_is_refused_at_once_when_its_run_ended_meanwhile(room, credential, finisher):
    await finisher.close()
    await room.until(lambda: not room.service.live())
    heard = len(room.desk.named("hello"))
    room.desk.live = ()
    again = await room.connect(credential)
    frame = await again.hello(version=OTHER, attempts=[attempt()])
    assert (frame["code"], frame["reason"], frame["retry"]) == ("version_mismatch", TEXT, "never")
    assert len(room.desk.named("hello")) == heard


async def test_the_next_server_lets_it_finish_too(make_room):
    async with make_room() as room:
        credential = (await room.enroll())["credential"]
        room.desk.live = (R1,)
        await room.online(credential, version=OTHER, attempts=[attempt()])
    async with make_room() as room:
        room.desk.live = (R1,)
        agent = await room.online(credential, version=OTHER, attempts=[attempt()])
        assert [row["reason"] for row in await room.refused()] == [TEXT]
        records_the_end(room)
        await send_end(agent)
        await agent.receive("ack")
        assert (await agent.receive("refused"))["reason"] == TEXT


async def test_removing_its_worker_revokes_it_as_any_other(room, finisher):
    await room.service.remove("gpu-box")
    assert (await finisher.closed())["reason"] == "revoked"


async def test_another_protocol_is_refused_whatever_it_holds(room, credential):
    room.desk.live = (R1,)
    agent = await room.connect(credential)
    frame = await agent.hello(protocol=2, version=OTHER, attempts=[attempt()])
    assert (frame["code"], frame["reason"]) == ("version_mismatch", TEXT)


@pytest.mark.spec("version/checked-before-rest-of-message")
@pytest.mark.parametrize("rest", [{"attempts": "many"}, {"attempts": [attempt()], "devices": 7}, {"x": 1}])
async def test_what_can_not_be_read_of_another_version_is_its_version(room, credential, rest):
    agent = await room.connect(credential)
    await agent.send(t="hello", protocol=1, version=OTHER, **rest)
    assert (await agent.receive("refused"))["reason"] == TEXT


async def test_one_that_says_its_version_and_nothing_more_is_told_so(room, credential):
    agent = await room.connect(credential)
    await agent.send(t="hello", protocol=1, version=OTHER)
    asking = asyncio.create_task(agent.receive("refused"))
    await room.until(lambda: any(one.mismatch for one in room.service._reception._serving.values()))
    await room.manual.advance(12)
    assert (await asking)["reason"] == TEXT


async def test_the_version_counts_before_another_agent_that_holds_the_name(room, credential):
    holder = await room.online(credential)
    agent = await room.connect(credential)
    frame = await agent.hello(version=OTHER, incarnation="b" * 32, attempts=[attempt()])
    assert frame["code"] == "version_mismatch"
    assert room.service.live()[0].number == holder.welcome["session"]


def test_attempts_of_the_tests_are_attempts():
    assert HelloAttempt.model_validate(attempt()).run_id == "r1"
