import asyncio
import json

import pytest

from codefyui_core.wire import codec
from codefyui_core.wire.messages import AckEntry, Assign, CatalogMessage, Rewind, Stop, StopReason

ATTEMPT = {"run_id": "r1", "attempt": 1, "lease": "l", "db_id": "d", "phase": "running", "last": 9}
ITEM = {"kind": "event", "type": "log", "payload": {}, "ts": 1}


@pytest.fixture
async def credential(room):
    return (await room.enroll())["credential"]


@pytest.fixture
async def agent(room, credential):
    return await room.online(credential)


async def test_hello_is_answered_with_verdicts_and_what_the_agent_has_to_know(room, credential):
    agent = await room.connect(credential)
    welcome = await agent.hello(attempts=[ATTEMPT])
    assert welcome["worker"]["name"] == "gpu-box"
    assert welcome["db_id"] == room.db.db_id
    assert welcome["session"] >> 32 == room.db.epoch
    assert welcome["settings"]["grace_s"] == 300
    assert [(one["run_id"], one["kind"]) for one in welcome["verdicts"]] == [("r1", "resume")]


async def test_runs_come_only_after_the_first_report(room, credential):
    agent = await room.connect(credential)
    await agent.hello()
    link = await room.until(room.service.live)
    assert not link[0].ready
    assert room.desk.named("welcomed") == []
    await agent.report()
    assert link[0].ready


async def test_items_are_acknowledged_after_the_runs_took_them(room, agent):
    await agent.send(t="items", run_id="r1", attempt=1, lease="l", first=3, items=[ITEM, ITEM])
    ack = await agent.receive("ack")
    assert ack["acks"] == [{"run_id": "r1", "attempt": 1, "seq": 4, "recorded": None}]


async def test_a_gap_is_answered_with_rewind(room, agent):
    async def rewind(batch):
        return Rewind(run_id=batch.run_id, attempt=batch.attempt, position=1)

    room.desk.items_answer = rewind
    await agent.send(t="items", run_id="r1", attempt=1, lease="l", first=3, items=[ITEM])
    assert (await agent.receive("rewind"))["position"] == 1


async def test_a_database_that_is_away_gets_the_same_batch_until_it_takes_it(room, agent):
    tries = []

    async def later(batch):
        tries.append(batch.first)
        return None if len(tries) < 3 else Rewind(run_id="r1", attempt=1, position=7)

    room.desk.items_answer = later
    await agent.send(t="items", run_id="r1", attempt=1, lease="l", first=3, items=[ITEM])
    for count in (1, 2):
        await room.until(lambda count=count: len(tries) == count)
        await room.manual.advance(1)
    assert (await agent.receive("rewind"))["position"] == 7
    assert tries == [3, 3, 3]


async def test_batches_that_waited_for_the_database_are_taken_in_and_acknowledged_together(room, agent):
    gate, sizes = asyncio.Event(), []

    async def slow(batch):
        sizes.append(len(batch.items))
        await gate.wait()
        last = batch.first + len(batch.items) - 1
        return AckEntry(run_id=batch.run_id, attempt=batch.attempt, seq=last)

    room.desk.items_answer = slow
    await agent.send(t="items", run_id="r1", attempt=1, lease="l", first=1, items=[ITEM])
    await room.until(lambda: sizes == [1])
    for first in (2, 3):
        await agent.send(t="items", run_id="r1", attempt=1, lease="l", first=first, items=[ITEM])
    await agent.send(t="items", run_id="r2", attempt=1, lease="l", first=1, items=[ITEM])
    session = room.service.live()[0]
    await agent.send(t="beat", n=0, spool_bytes=1)
    await room.until(lambda: session.spool_bytes == 1)
    gate.set()
    acks = [(await agent.receive("ack"))["acks"][0] for _ in range(3)]
    assert [(ack["run_id"], ack["seq"]) for ack in acks] == [("r1", 1), ("r1", 3), ("r2", 1)]
    assert sizes == [1, 2, 1]
    await room.until(lambda: session.waiting_bytes == 0)


@pytest.mark.spec("drop/confirm-only-after-recorded")
async def test_a_slow_database_stops_neither_beats_nor_the_line(room, agent):
    gate = asyncio.Event()

    async def slow(batch):
        await gate.wait()
        return Rewind(run_id="r1", attempt=1, position=0)

    room.desk.items_answer = slow
    await agent.send(t="items", run_id="r1", attempt=1, lease="l", first=1, items=[ITEM])
    session = room.service.live()[0]
    for number in range(1, 10):
        await agent.send(t="beat", n=0, spool_bytes=number)
        await room.until(lambda number=number: session.spool_bytes == number)
        await room.manual.advance(10)
    assert room.service.live()
    gate.set()
    await agent.receive("rewind")


async def test_beats_are_sent_when_nothing_else_is(room, agent):
    await room.manual.advance(6)
    assert (await agent.receive())["t"] == "beat"


@pytest.mark.spec("drop/three-missed-heartbeats-30s", "drop/close-and-silence-handled-alike")
async def test_thirty_seconds_without_a_frame_take_the_line_down(room, agent):
    await room.manual.advance(29)
    assert room.service.live()
    await room.manual.advance(3)
    await room.until(lambda: room.desk.named("link_down"))
    assert room.desk.named("link_down")[0][1] == "no heartbeat for 30 s"
    assert room.service.live() == ()


async def test_the_servers_own_sleep_is_nobodys_silence(room, agent):
    await room.manual.advance(20)
    room.manual.jump(3600)
    await room.manual.advance(20)
    assert room.service.live()
    assert room.desk.named("link_down") == []


@pytest.mark.spec("drop/socket-close-means-disconnected")
async def test_a_closed_socket_takes_the_line_down(room, agent):
    await agent.close()
    await room.until(lambda: room.desk.named("link_down"))
    assert (await room.row())["status"] == "offline"


async def test_link_down_is_told_again_until_the_database_takes_it(room, agent):
    room.desk.fail = OSError("database is away")
    await agent.close()
    await room.until(lambda: room.desk.named("link_down"))
    room.desk.fail = None
    await room.manual.advance(2)
    await room.until(lambda: len(room.desk.named("link_down")) == 2)
    await room.manual.advance(10)
    assert len(room.desk.named("link_down")) == 2


async def test_an_unknown_word_is_answered_bad_and_ends_nothing(room, agent):
    await agent.send(t="dance", step=1)
    bad = await agent.receive("bad")
    assert (bad["word"], bad["reason"]) == ("dance", "unknown word")
    await agent.send(t="items", run_id="r1", attempt=1, lease="l", first=1, items=[ITEM])
    assert (await agent.receive("ack"))["acks"][0]["seq"] == 1


async def test_bad_is_never_answered(room, agent):
    await agent.send(t="bad", word="ack", reason="no")
    await agent.send(t="dance")
    assert (await agent.receive("bad"))["word"] == "dance"


async def test_a_frame_over_the_limit_closes_with_1009(room, agent):
    await agent.socket.send_str("x" * (codec.FRAME_BYTES + 1))
    while (frame := await agent.receive())["t"] != "closed":
        pass
    assert frame["code"] == 1009


async def test_what_an_agent_lacks_is_asked_for_once_and_remembered(room, credential):
    agent = await room.connect(credential)
    assert (await agent.hello(catalog_hash="theirs"))["want_catalog"]
    await agent.send(t="report", storage={})
    await agent.send(t="catalog", hash="theirs", types={"A": "1", "C": "2"})
    await room.until(lambda: room.desk.named("welcomed"))
    assert room.service.live()[0].node_types == {"A", "C"}
    await agent.close()
    await room.until(lambda: not room.service.live())
    again = await room.connect(credential)
    assert not (await again.hello(catalog_hash="theirs", incarnation="b" * 32))["want_catalog"]
    assert room.service.live()[0].node_types == {"A", "C"}


async def test_a_catalog_of_any_size_comes_in_parts(room, credential):
    agent = await room.connect(credential)
    await agent.hello(catalog_hash="big")
    await agent.send(t="report", storage={})
    types = {f"Type{n}": "f" * 64 for n in range(20_000)}
    for frame in codec.frames(CatalogMessage(hash="big", types=types), "p1"):
        await agent.socket.send_str(frame.decode())
    await room.until(lambda: room.desk.named("welcomed"))
    assert len(room.service.live()[0].node_types) == 20_000


async def test_a_hello_over_one_frame_comes_in_parts(room, credential):
    agent = await room.connect(credential)
    attempts = [ATTEMPT | {"run_id": f"{n:032d}", "lease": "l" * 32} for n in range(9000)]
    whole = {
        "t": "hello",
        "protocol": 1,
        "version": "1.2.3",
        "name": "gpu-box",
        "incarnation": "a" * 32,
        "home_id": "h",
        "machine_id": "x",
        "attempts": attempts,
    }
    await agent.send(t="hello", protocol=1, version="1.2.3")
    for frame in codec.split(json.dumps(whole).encode(), "hello", "p"):
        await agent.socket.send_str(frame.decode())
    assert len(await agent.receive("welcome", "part")) > 0
    assert len(room.desk.named("hello")[0][2]) == 9000


async def test_orders_of_the_runs_reach_the_agent(room, agent):
    room.service.live()[0].send(Stop(run_id="r1", attempt=1, reason=StopReason.USER))
    assert (await agent.receive("stop"))["reason"] == "user"


async def test_other_live_runs_in_two_beats_running_ask_for_a_new_hello(room, agent):
    room.desk.live = (("r1", 1),)
    await agent.send(t="beat", live_count=0)
    await agent.send(t="beat", live_count=0)
    assert (await agent.closed())["reason"] == "resync"


async def test_the_same_live_runs_and_a_single_crossing_ask_for_nothing(room, agent):
    room.desk.live = (("r1", 1),)
    await agent.send(t="beat", live_count=0)
    await agent.send(t="beat", live_count=1, live_hash=codec.live_hash([("r1", 1)]))
    await agent.send(t="beat", live_count=0)
    await agent.send(t="beat", live_count=1, live_hash=codec.live_hash([("r1", 1)]), spool_bytes=5)
    await room.until(lambda: room.service.live()[0].spool_bytes == 5)
    await agent.send(t="dance")
    assert (await agent.receive("bad", "bye"))["t"] == "bad"


async def test_bye_is_recorded_and_answered_before_the_socket_is_closed(room, agent):
    await agent.send(t="bye", reason="stopping")
    last = await agent.closed()
    assert (last["t"], last["reason"]) == ("bye", "done")
    assert [call[1] for call in room.desk.named("link_down")] == ["the agent left (stopping)"]


@pytest.mark.parametrize("reason", ["shutdown", "restart"])
async def test_a_server_that_stops_says_so(room, agent, reason):
    stopping = asyncio.create_task(room.service.stop(reason, 60.0 if reason == "restart" else None))
    last = await agent.closed()
    await stopping
    assert (last["t"], last["reason"]) == ("bye", reason)
    assert room.service.live() == ()


async def test_a_lease_that_does_not_fit_asks_for_a_new_hello(room, agent):
    from codefyui_core.errors import CodefyError

    async def unknown(batch):
        raise CodefyError("not yours", code="run.attempt_unknown")

    room.desk.items_answer = unknown
    await agent.send(t="items", run_id="r1", attempt=1, lease="l", first=1, items=[ITEM])
    assert (await agent.closed())["reason"] == "resync"


async def test_refusals_and_wishes_reach_the_runs_in_order(room, agent):
    await agent.send(t="refuse", run_id="r1", attempt=1, code="busy", detail="d", retry=True)
    await agent.send(t="want_grant", run_id="r2", attempt=1, have_version=2, why="expired")
    await room.until(lambda: room.desk.named("want_grant"))
    names = [call[0] for call in room.desk.calls if call[0] in {"refused", "want_grant"}]
    assert names == ["refused", "want_grant"]
    assert room.desk.named("refused")[0][1].retry


async def test_binary_frames_are_answered_bad(room, agent):
    await agent.socket.send_bytes(b"\0")
    assert (await agent.receive("bad"))["reason"] == "frames are text"


async def test_an_agent_that_says_nothing_is_let_go(room, credential):
    agent = await room.connect(credential)
    await room.manual.advance(12)
    assert await agent.closed() is None
    assert room.service.live() == ()


async def test_a_client_that_is_no_websocket_is_refused(room, credential):
    headers = {"Authorization": f"Bearer {credential}"}
    async with room.http.get(f"{room.url}/ws/worker", headers=headers) as response:
        assert response.status == 400


def assignment(run_id):
    known = {"attempt": 1, "lease": "l", "db_id": "d", "graph": {}, "options": {}, "devices": ("cpu",)}
    return Assign(run_id=run_id, **known)


async def beats(room, agent, seconds):
    """Time passes while the agent beats."""
    session = room.service.live()[0]
    for number in range(seconds // 5):
        await agent.send(t="beat", spool_bytes=number + 1)
        await room.until(lambda number=number: session.spool_bytes == number + 1)
        await room.manual.advance(5)


async def test_an_assignment_that_is_not_answered_asks_for_a_new_hello(room, agent):
    room.service.live()[0].send(assignment("r1"))
    await agent.receive("assign")
    await beats(room, agent, 25)
    await room.manual.advance(8)
    assert (await agent.closed())["reason"] == "resync"


async def test_an_answered_assignment_asks_for_nothing(room, agent):
    session = room.service.live()[0]
    session.send(assignment("r1"))
    session.send(assignment("r2"))
    await agent.send(t="items", run_id="r1", attempt=1, lease="l", first=1, items=[ITEM])
    await agent.send(t="refuse", run_id="r2", attempt=1, code="busy", retry=True)
    await room.until(lambda: room.desk.named("refused"))
    await beats(room, agent, 60)
    assert room.service.live() == (session,)
