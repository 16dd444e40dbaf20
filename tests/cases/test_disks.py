"""Disks that are full at every possible moment, and power that goes at every possible moment."""

import asyncio
import errno
import logging
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codefyui_core.agent import stream as streams
from codefyui_core.agent.disk import Disk
from codefyui_core.agent.spool import Spool
from codefyui_core.agent.stream import Stream
from codefyui_core.wire.messages import ItemKind

EVENTS = 12
SEGMENT_BYTES = 150
"""A new file every third record or so."""
CALLS = 60
"""More than any of the stories below makes."""


class FailingDisk(Disk):
    """Every call is counted; those whose numbers are in ``full`` find no space. Half of a record is written then."""

    def __init__(self, full):
        self.full = full
        self.calls = 0

    def _count(self):
        self.calls += 1
        if self.calls in self.full:
            raise OSError(errno.ENOSPC, "No space left on device")

    def open(self, path):
        self._count()
        return super().open(path)

    def _write(self, descriptor, data):
        try:
            self._count()
        except OSError:
            super()._write(descriptor, data[: len(data) // 2])
            raise
        super()._write(descriptor, data)

    def sync(self, descriptor):
        self._count()
        super().sync(descriptor)

    def sync_folder(self, folder):
        self._count()
        super().sync_folder(folder)


def text(number):
    return b'{"n":%d,"pad":"%s"}' % (number, b"x" * 20)


async def tell(stream, count=EVENTS):
    """A whole run: its acceptance, its events, its end. What it was told is safe is ``durable``."""
    await stream.append(ItemKind.ACCEPTED, b"{}")
    for number in range(count):
        await stream.append(ItemKind.EVENT, text(number), must_sync=number % 4 == 3)
        await asyncio.sleep(0)
    return await stream.append(ItemKind.END, b'{"end":1}')


def told():
    return [b"{}", *map(text, range(EVENTS)), b'{"end":1}']


def replayed(folder):
    """What a new agent reads of a spool: all good records in order."""
    spool = Spool(folder)
    found = []
    while len(found) < spool.last:
        batch = spool.read(len(found) + 1, limit_bytes=1 << 20, limit_items=100)
        assert batch, "a hole that nothing explains"
        found += batch
    assert spool.gaps == []
    spool.close()
    return found


@pytest.fixture
def quick_retries(monkeypatch):
    monkeypatch.setattr(streams, "RETRY_S", 0.001)
    monkeypatch.setattr(streams, "SYNC_EVERY_S", 0.001)


def stream_over(folder, disk):
    spool = Spool(folder, disk=disk, segment_bytes=SEGMENT_BYTES)
    return Stream(spool, news=lambda: None, log=logging.getLogger("test"))


@pytest.mark.spec("drop/events-spooled-on-disk-until-confirmed")
@pytest.mark.point(45)
@pytest.mark.parametrize("length", [1, 3], ids=["one call", "three calls"])
@pytest.mark.parametrize("first", range(1, CALLS, 3))
async def test_space_that_is_missing_for_any_calls_costs_no_record_once_it_is_back(
    tmp_path, quick_retries, first, length
):
    stream = stream_over(tmp_path, FailingDisk(range(first, first + length)))
    stream.start()
    async with asyncio.timeout(20):
        last = await tell(stream)
        await stream.durable(last)
    assert await stream.read(1, limit_bytes=1 << 20) == told()
    await stream.aclose()
    assert replayed(tmp_path) == told()


@pytest.mark.point(45)
@pytest.mark.parametrize("first", range(1, CALLS, 4))
async def test_an_agent_killed_on_a_disk_that_stays_full_leaves_a_clean_beginning_with_all_that_was_safe(
    tmp_path, quick_retries, first
):
    """Half a record is cut back, the replay stops at the last good one, and nothing that was synced is missing."""
    stream = stream_over(tmp_path, FailingDisk(range(first, 10**6)))
    stream.start()
    async with asyncio.timeout(20):
        await tell(stream)
    safe = stream.spool.durable
    stream._task.cancel()
    await asyncio.gather(stream._task, return_exceptions=True)
    stream.spool.close()
    found = replayed(tmp_path)
    assert found == told()[: len(found)]
    assert len(found) >= safe
    assert stream.sendable <= stream.last


async def test_a_run_on_a_full_disk_is_held_when_memory_is_full_too_and_goes_on_when_there_is_room(
    tmp_path, quick_retries, monkeypatch
):
    monkeypatch.setattr(streams, "HELD_BYTES", 100)
    disk = FailingDisk(range(3, 10**6))
    stream = stream_over(tmp_path, disk)
    stream.start()
    telling = asyncio.create_task(tell(stream))
    async with asyncio.timeout(20):
        while stream._room.is_set():
            await asyncio.sleep(0)
        assert not telling.done()
        disk.full = ()
        await stream.durable(await telling)
    await stream.aclose()
    assert replayed(tmp_path) == told()


# ---------------------------------------------------------------- power


class UnpluggedDisk(Disk):
    """What wasn't synced is lost when the power goes, before the call whose number is ``off``: of each file the
    bytes, of each folder the names.
    """

    class Off(Exception):
        pass

    def __init__(self, off, torn):
        self.off, self.torn = off, torn
        self.calls = 0
        self.paths, self.synced, self.named = {}, {}, set()

    def _count(self):
        self.calls += 1
        if self.calls >= self.off:
            raise self.Off

    def open(self, path):
        self._count()
        descriptor = super().open(path)
        self.paths[descriptor] = path
        self.synced.setdefault(path, 0)
        return descriptor

    def _write(self, descriptor, data):
        self._count()
        super()._write(descriptor, data)

    def sync(self, descriptor):
        self._count()
        path = self.paths[descriptor]
        self.synced[path] = path.stat().st_size

    def sync_folder(self, folder):
        self._count()
        self.named |= {path for path in self.synced if path.parent == folder}

    def lose(self):
        for path, size in self.synced.items():
            if not path.exists():
                continue
            if path not in self.named:
                path.unlink()
                continue
            kept = size + int((path.stat().st_size - size) * self.torn)
            with path.open("r+b") as file:
                file.truncate(kept)


def story(spool):
    """Numbers that were safe when the power went: synced, and so told or sent as such."""
    for number in range(EVENTS):
        kind = ItemKind.ACCEPTED if number == 0 else ItemKind.EVENT
        spool.append(kind, text(number))
        if number % 3 == 2 or number == 0:
            sync = spool.sync()
            sync.run()
            spool.synced(sync)


@pytest.mark.spec("drop/events-spooled-on-disk-until-confirmed")
@pytest.mark.point(18)
@pytest.mark.parametrize("torn", [0, 0.5, 1])
@pytest.mark.parametrize("off", range(1, 36))
def test_power_that_goes_before_any_call_takes_nothing_that_was_said_to_be_safe(tmp_path, off, torn):
    disk = UnpluggedDisk(off, torn)
    spool = Spool(tmp_path, disk=disk, segment_bytes=SEGMENT_BYTES)
    with suppress(UnpluggedDisk.Off):
        story(spool)
    safe = spool.durable
    spool.close()
    disk.lose()
    found = replayed(tmp_path)
    assert len(found) >= safe
    assert found == [text(number) for number in range(len(found))]


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_flipped_bit_is_found_and_counted_wherever_it_is(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("spool")
    spool = Spool(folder, segment_bytes=SEGMENT_BYTES)
    story(spool)
    spool.close()
    path = data.draw(st.sampled_from(sorted(folder.glob("*.log"))))
    raw = bytearray(path.read_bytes())
    bit = data.draw(st.integers(0, len(raw) * 8 - 1))
    raw[bit // 8] ^= 1 << bit % 8
    path.write_bytes(raw)
    again = Spool(folder)
    wrong = [seq for seq in range(1, EVENTS + 1) if _read(again, seq) != text(seq - 1)]
    assert len(wrong) == 1, "one record is lost, and none is read otherwise than it was written"
    is_last = wrong[0] == EVENTS
    assert (again.last == EVENTS - 1) if is_last else (again.gap(wrong[0]) is not None)
    again.close()


def _read(spool, seq):
    if seq > spool.last or spool.gap(seq) is not None:
        return None
    return spool.read(seq, limit_bytes=1, limit_items=1)[0]
