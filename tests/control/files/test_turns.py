"""One at a time for a file."""

import asyncio

import pytest

from codefyui_core.control.files.turns import Turns


class Room:
    """Who is in it, by key."""

    def __init__(self):
        self.turns = Turns()
        self.inside = []
        self.most = 0

    async def visit(self, *keys, stay=3):
        async with self.turns.of(*keys):
            self.inside += keys
            self.most = max(self.most, *(self.inside.count(key) for key in keys))
            for _ in range(stay):
                await asyncio.sleep(0)
            for key in keys:
                self.inside.remove(key)


async def test_who_comes_while_a_turn_passes_on_waits_too():
    room = Room()
    visits = [asyncio.create_task(room.visit("a")) for _ in range(2)]
    for _ in range(
        20
    ):  # one comes at each step, also between the end of a turn and the beginning of the next one
        await asyncio.sleep(0)
        visits.append(asyncio.create_task(room.visit("a")))
    await asyncio.gather(*visits)
    assert room.most == 1
    assert room.turns._turns == {}


async def test_who_takes_several_turns_waits_for_nobody_forever():
    room = Room()
    orders = ["ab", "ba", "abc", "cba", "b", "ca"] * 5
    async with asyncio.timeout(10):
        await asyncio.gather(*(room.visit(*order) for order in orders))
    assert room.most == 1
    assert room.turns._turns == {}


async def test_who_stops_waiting_lets_go_of_what_it_has():
    room = Room()
    first = asyncio.create_task(room.visit("b", stay=100))
    waiting = asyncio.create_task(room.visit("a", "b"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.wait_for(room.visit("a"), 10)
    assert not first.done()
    await first
    assert room.turns._turns == {}
