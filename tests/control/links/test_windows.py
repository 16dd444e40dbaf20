"""Windows: what agents send ahead stays within bounds, however many they are and however slow the database is."""

import asyncio
from dataclasses import dataclass, field

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.control.links.windows import ALL_BYTES, LEAST_BYTES, Windows, share
from codefyui_core.wire.limits import MIB
from codefyui_core.wire.messages import AckEntry, Rewind

MANY = 200
GROUP = 20
ALL = 8 * MIB
"""An eighth of the real bound, with as many sessions."""
ITEM = {"kind": "event", "type": "log", "payload": {"text": "x" * 4000}, "ts": 1}
FRAME_BYTES = 5000


@given(st.integers(0, ALL_BYTES // LEAST_BYTES))
def test_all_windows_together_fit(sessions):
    window = share(sessions)
    assert LEAST_BYTES <= window <= MIB
    assert window * sessions <= ALL_BYTES
    assert share(sessions + 1) <= window


@dataclass(eq=False)
class Told:
    windows: list = field(default_factory=list)

    def narrow(self, window_bytes):
        self.windows.append(window_bytes)


def test_everybody_is_told_of_a_narrower_window_at_once_and_a_wider_one_waits():
    windows = Windows(all_bytes=4 * MIB)
    sessions = [Told() for _ in range(5)]
    assert [windows.join(one) for one in sessions] == [MIB] * 4 + [MIB // 2]
    assert [one.windows for one in sessions] == [[MIB // 2]] * 4 + [[]]
    windows.leave(sessions[0])
    windows.leave(sessions[0])
    assert windows.now == MIB
    assert sessions[1].windows == [MIB // 2]


async def test_a_window_is_told_with_the_welcome_and_a_wider_one_with_the_next_ack(room):
    room.service._windows.__init__(all_bytes=2 * MIB)
    token = await room.token(uses=3)
    agents = []
    for number in range(3):
        enrolled = await room.enroll(f"w{number}", token, f"{number}" * 32)
        agents.append(await room.online(enrolled["credential"], name=f"w{number}"))
    assert [one.welcome["settings"]["window_bytes"] for one in agents] == [MIB, MIB, MIB // 2]
    for one in agents[:2]:
        ack = await one.receive("ack")
        assert (ack["acks"], ack["window_bytes"]) == ([], MIB // 2)
    await agents[2].close()
    await room.until(lambda: len(room.service.live()) == 2)
    for expected in (MIB, None):
        await agents[0].send(t="items", run_id="r", attempt=1, lease="l", first=1, items=[ITEM])
        assert (await agents[0].receive("ack"))["window_bytes"] == expected


class Sender:
    """A simulated agent: sends numbered items as far as its window goes, beats, and remembers what came."""

    def __init__(self, name, agent):
        self.name = name
        self.agent = agent
        self.window = agent.welcome["settings"]["window_bytes"]
        self.sent = self.acked = self.beats = 0

    async def fill(self):
        """Until the window is shut."""
        while (self.sent - self.acked + 1) * FRAME_BYTES <= self.window:
            self.sent += 1
            await self.send_item(self.sent)

    async def send_item(self, number):
        item = ITEM | {"payload": {"n": number, "text": ITEM["payload"]["text"]}}
        await self.agent.send(t="items", run_id=self.name, attempt=1, lease="l", first=number, items=[item])

    async def read(self):
        """Until the socket is closed."""
        while (frame := await self.agent.receive())["t"] != "closed":
            if frame["t"] == "beat":
                self.beats += 1
            elif frame["t"] == "ack":
                self.window = frame["window_bytes"] or self.window
                self.acked = max([self.acked, *(ack["seq"] for ack in frame["acks"])])


@pytest.fixture
async def crowd(room):
    """The room, with a client that opens any number of sockets."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        room.http = http
        yield room


async def come(room, count):
    """That many workers, all of them connected in the end."""
    token = await room.token(uses=count)
    names = [f"w{number:03d}" for number in range(count)]
    enrolled = [await room.enroll(name, token, name * 8) for name in names]

    async def one(name, credential):
        agent = await room.connect(credential)
        assert (await agent.hello(name=name, incarnation=name.ljust(32, "0")))["t"] == "welcome"
        await agent.send(t="report", storage={})
        return Sender(name, agent)

    pairs = [(name, one_["credential"]) for name, one_ in zip(names, enrolled, strict=True)]
    senders = []
    for first in range(0, count, GROUP):
        senders += await asyncio.gather(*(one(*pair) for pair in pairs[first : first + GROUP]))
    return senders


@pytest.mark.point(46)
async def test_two_hundred_agents_on_a_slow_database_stay_within_the_bound_and_lose_nothing(crowd):
    """Beats go on meanwhile, so nobody is taken for dead, and what can't be stored now is stored once."""
    room = crowd
    room.service._windows.__init__(all_bytes=ALL)
    taken, gate = {}, asyncio.Event()

    async def slow(batch):
        await gate.wait()
        before = taken.setdefault(batch.run_id, [])
        if batch.first > len(before) + 1:
            return Rewind(run_id=batch.run_id, attempt=1, position=len(before))
        before += [item.payload["n"] for item in batch.items]
        return AckEntry(run_id=batch.run_id, attempt=1, seq=len(before))

    room.desk.items_answer = slow
    senders = await come(room, MANY)
    assert {one.agent.welcome["worker"]["name"] for one in senders} == {one.name for one in senders}
    reading = [asyncio.create_task(one.read()) for one in senders]
    await room.until(lambda: max(one.window for one in senders) == share(MANY, ALL))
    await asyncio.gather(*(one.fill() for one in senders))
    await room.until(
        lambda: sum(len(one._waiting) for one in room.service.live()) >= sum(s.sent for s in senders)
    )
    assert 0 < room.service.unacknowledged_bytes() <= ALL
    for round_ in range(1, 10):  # 90 s without a single acknowledgement
        for one in senders:
            await one.agent.send(t="beat", spool_bytes=round_)
        await room.until(lambda round_=round_: {one.spool_bytes for one in room.service.live()} == {round_})
        await room.manual.advance(10)
    assert len(room.service.live()) == MANY
    assert room.desk.named("link_down") == []
    await senders[0].agent.send(t="refuse", run_id="other", attempt=1, code="busy", retry=True)
    await senders[1].agent.send(t="bye", reason="stopping")
    gate.set()
    await room.until(lambda: all(one.acked == one.sent for one in senders))
    assert min(one.beats for one in senders) >= 9
    assert taken == {one.name: list(range(1, one.sent + 1)) for one in senders}
    await room.until(lambda: room.desk.named("refused"))
    await room.until(lambda: len(room.service.live()) == MANY - 1)
    await asyncio.gather(*(one.agent.close() for one in senders))
    await asyncio.gather(*reading)
