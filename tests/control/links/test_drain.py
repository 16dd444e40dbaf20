"""Drain: a worker gets no new runs until it is undrained, whatever starts anew meanwhile."""

import asyncio

import pytest

from codefyui_core.errors import CodefyError
from codefyui_core.plugin.views import WorkerEventKind


@pytest.fixture
async def credential(room):
    return (await room.enroll())["credential"]


@pytest.mark.parametrize("drained", [True, False])
async def test_the_connected_worker_and_its_row_say_so_and_the_queue_looks_again(room, credential, drained):
    await room.online(credential)
    await room.service.drain("gpu-box", drained=not drained)
    before = len(room.desk.named("offers_changed"))
    assert await room.service.drain("GPU-box", drained=drained) == {"name": "gpu-box", "drained": drained}
    (link,) = room.service.live()
    assert (link.view.drained, link.view.connected) == (drained, True)
    assert (await room.row())["drained"] is drained
    assert len(room.desk.named("offers_changed")) == before + 1


async def test_it_outlives_the_server_and_the_agent(make_room):
    async with make_room() as room:
        credential = (await room.enroll())["credential"]
        await room.service.drain("gpu-box", drained=True)  # while it is offline
        first = await room.online(credential)
        await first.close()
        await room.until(lambda: not room.service.live())
        await room.online(credential, incarnation="b" * 32)
        assert room.service.live()[0].view.drained
    async with make_room() as room:
        assert (await room.row())["drained"]
        await room.online(credential, incarnation="c" * 32)
        assert room.service.live()[0].view.drained
        await room.service.drain("gpu-box", drained=False)
    async with make_room() as room:
        await room.online(credential)
        assert not room.service.live()[0].view.drained


async def test_a_hello_on_its_way_in_does_not_miss_it(room, credential):
    room.desk.hello_gate = asyncio.Event()
    agent = await room.connect(credential)
    greeting = asyncio.create_task(agent.hello())
    await room.until(lambda: room.desk.named("hello"))
    draining = asyncio.create_task(room.service.drain("gpu-box", drained=True))
    room.desk.hello_gate.set()
    assert (await greeting)["t"] == "welcome"
    await draining
    assert room.service.live()[0].view.drained


async def test_plugins_are_told(room, credential):
    told = []
    room.service.listeners.append(lambda event: told.append((event.kind, event.worker.drained)))
    await room.service.drain("gpu-box", drained=True)
    await room.service.drain("gpu-box", drained=False)
    assert told == [(WorkerEventKind.DRAINED, True), (WorkerEventKind.UNDRAINED, False)]


async def test_draining_nobody_says_so(room):
    with pytest.raises(CodefyError, match="no worker named nobody"):
        await room.service.drain("nobody", drained=True)
