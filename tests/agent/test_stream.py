import asyncio
import logging

import pytest

from codefyui_core.agent import stream as streams
from codefyui_core.agent.disk import Disk
from codefyui_core.agent.spool import Spool
from codefyui_core.agent.stream import Stream
from codefyui_core.wire.messages import ItemKind


class Filling(Disk):
    """A disk that takes nothing more while ``full``; ``spare`` bytes come free with the reserve."""

    full = False

    def _write(self, descriptor, data):
        if self.full:
            raise OSError(28, "No space left on device")
        super()._write(descriptor, data)

    def open(self, path):
        if self.full and not path.exists():
            raise OSError(28, "No space left on device")
        return super().open(path)


@pytest.fixture
async def made(tmp_path):
    disk = Filling()
    stream = Stream(Spool(tmp_path, disk=disk), news=lambda: None, log=logging.getLogger("test"))
    stream.start()
    yield stream, disk
    disk.full = False
    await stream.aclose()


async def test_what_must_be_on_disk_is_sendable_after_its_sync(made):
    stream, _ = made
    seq = await stream.append(ItemKind.ACCEPTED, b"{}")
    await asyncio.wait_for(stream.durable(seq), 10)
    assert stream.sendable == 1


@pytest.mark.point(45)
async def test_with_a_full_disk_events_go_on_from_memory_and_reach_the_disk_later(made):
    stream, disk = made
    await stream.append(ItemKind.EVENT, b"1")
    disk.full = True
    assert await stream.append(ItemKind.EVENT, b"2") == 2
    assert await stream.append(ItemKind.EVENT, b"3") == 3
    assert stream.sendable == 3
    assert await stream.read(2) == [b"2", b"3"]
    disk.full = False
    assert await stream.append(ItemKind.EVENT, b"4") == 4
    assert stream.spool.last == 4
    assert await stream.read(1) == [b"1", b"2", b"3", b"4"]


@pytest.mark.point(45)
async def test_when_memory_is_full_too_the_run_is_held(made, monkeypatch):
    monkeypatch.setattr(streams, "HELD_BYTES", 10)
    stream, disk = made
    disk.full = True
    await stream.append(ItemKind.EVENT, b"x" * 10)
    held = asyncio.create_task(stream.append(ItemKind.EVENT, b"y"))
    await asyncio.sleep(0)
    assert not held.done()
    stream.trim(1)
    assert await asyncio.wait_for(held, 10) == 2


async def test_what_was_recorded_from_memory_keeps_its_numbers_on_disk(made):
    stream, disk = made
    await stream.append(ItemKind.EVENT, b"1")
    disk.full = True
    for text in (b"2", b"3"):
        await stream.append(ItemKind.EVENT, text)
    stream.trim(2)
    disk.full = False
    await stream.append(ItemKind.EVENT, b"4")
    assert stream.last == 4
    assert await stream.read(3) == [b"3", b"4"]
    await stream.aclose()
    assert Spool(stream.spool.folder).last == 4


@pytest.mark.point(45)
async def test_the_end_fits_on_a_full_disk_by_the_reserve(tmp_path):
    class Tight(Filling):
        def _write(self, descriptor, data):
            if (tmp_path / "reserve").exists():
                raise OSError(28, "No space left on device")
            Disk._write(self, descriptor, data)

    stream = Stream(Spool(tmp_path, disk=Tight()), news=lambda: None, log=logging.getLogger("test"))
    stream.keep_reserve()
    assert await stream.append(ItemKind.END, b"{}") == 1
    assert stream.spool.last == 1
    await stream.aclose()
