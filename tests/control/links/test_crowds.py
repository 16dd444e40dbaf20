"""Many agents at once: handshakes take turns, and a stopping server says bye to all within its time."""

import asyncio

import aiohttp
import pytest

from codefyui_core.control.links.reception import AT_ONCE

MANY = 200
GROUP = 20


@pytest.fixture
async def crowd(room):
    """The room, with a client that opens any number of sockets."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        room.http = http
        yield room


async def enrolled(room, count):
    token = await room.token(uses=count)
    names = [f"w{number:03d}" for number in range(count)]
    return [(name, (await room.enroll(name, token, name * 8))["credential"]) for name in names]


async def greet(room, name, credential):
    agent = await room.connect(credential)
    frame = await agent.hello(name=name, incarnation=name.ljust(32, "0"))
    assert frame["t"] == "welcome"
    return agent


async def test_sixty_four_handshakes_go_on_at_a_time_and_the_rest_wait(crowd):
    gate = crowd.desk.hello_gate = asyncio.Event()
    known = await enrolled(crowd, AT_ONCE + 6)
    greeting = [asyncio.create_task(greet(crowd, *one)) for one in known]
    await crowd.until(lambda: len(crowd.desk.named("hello")) == AT_ONCE)
    await crowd.until(lambda: len(crowd.service._reception._at_once._waiters or ()) == 6)
    assert len(crowd.desk.named("hello")) == AT_ONCE
    await crowd.manual.advance(30)  # those that wait said hello in time, and get beats meanwhile
    gate.set()
    await asyncio.gather(*greeting)
    assert len(crowd.service.live()) == AT_ONCE + 6


async def test_two_hundred_agents_get_a_bye_and_a_close_frame_and_nobody_is_waited_for(crowd):
    known = await enrolled(crowd, MANY)
    agents = []
    for first in range(0, MANY, GROUP):
        agents += await asyncio.gather(*(greet(crowd, *one) for one in known[first : first + GROUP]))
    closing = [asyncio.create_task(one.closed()) for one in agents]
    async with asyncio.timeout(30):
        await crowd.service.stop("restart", 60.0)
        lasts = await asyncio.gather(*closing)
    assert {last["reason"] for last in lasts} == {"restart"}
    assert {one.socket.close_code for one in agents} == {4001}
    assert crowd.service.live() == ()
    assert crowd.service._reception._serving == {}
