"""Inputs by content: whole files alone, each fetched once, whoever else uses the folder."""

import asyncio
import hashlib
import logging
import os
import time

import pytest

from codefyui_core.agent.carrying.cache import ORPHAN_S, InputCache
from codefyui_core.agent.disk import Disk
from codefyui_core.agent.folder import Owner
from codefyui_core.errors import Busy, Corrupt

LOG = logging.getLogger("test")
DATA = b"1,2,3\n" * 1000
SHA = hashlib.sha256(DATA).hexdigest()


def owner(incarnation="a" * 32, **other):
    return Owner.this_process(incarnation).model_copy(update=other)


@pytest.fixture
def cache(tmp_path):
    made = InputCache(tmp_path / "agent-cache", owner(), LOG)
    made.start()
    return made


def names(tmp_path):
    return sorted(path.name for path in (tmp_path / "agent-cache").iterdir() if path.suffix != ".owner")


async def whole(path):
    path.write_bytes(DATA)


@pytest.mark.spec("transfer/agent-cache-location-and-name")
async def test_what_was_fetched_has_its_hash_as_its_name(cache, tmp_path):
    assert not await cache.has(SHA, len(DATA))
    await cache.take(SHA, len(DATA), whole)
    assert names(tmp_path) == [SHA]
    assert await cache.has(SHA, len(DATA))
    with os.fdopen(cache.open(SHA), "rb") as file:
        assert file.read() == DATA


async def test_files_that_come_together_have_their_names_when_they_are_on_the_disk(
    cache, tmp_path, monkeypatch
):
    folder, synced, folders = tmp_path / "agent-cache", set(), []
    sync, sync_folder = Disk.sync, Disk.sync_folder

    def noting(disk, descriptor):
        assert os.fstat(descriptor).st_ino not in {path.stat().st_ino for path in folder.glob("[0-9a-f]*")}
        sync(disk, descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(Disk, "sync", noting)
    monkeypatch.setattr(Disk, "sync_folder", lambda *known: (folders.append(known), sync_folder(*known)))

    async def take(number):
        data = b"%d" % number
        digest = hashlib.sha256(data).hexdigest()

        async def fetch(path):
            path.write_bytes(data)

        assert await cache.begun_bytes(digest) == 0
        await cache.take(digest, len(data), fetch)
        assert (folder / digest).stat().st_ino in synced

    await asyncio.gather(*map(take, range(50)))
    assert len(names(tmp_path)) == len(synced) == 50
    assert 1 <= len(folders) < 25


@pytest.mark.spec("transfer/downloaded-input-hash-verified")
@pytest.mark.parametrize("said", [None, hashlib.sha256(b"other").hexdigest()])
@pytest.mark.parametrize("data", [DATA[:-1] + b"x", DATA[:-1], DATA + b"x", b""])
async def test_other_content_gets_no_name_and_is_dropped(cache, tmp_path, data, said):
    async def fetch(path):
        path.write_bytes(data)
        return said

    with pytest.raises(Corrupt):
        await cache.take(SHA, len(DATA), fetch)
    assert names(tmp_path) == []
    assert await cache.begun_bytes(SHA) == 0


async def test_a_later_try_finds_what_an_earlier_one_got(cache):
    async def breaks(path):
        path.write_bytes(DATA[:1000])
        raise Busy("the line broke")

    async def goes_on(path):
        assert path.read_bytes() == DATA[:1000]
        path.write_bytes(DATA)

    with pytest.raises(Busy):
        await cache.take(SHA, len(DATA), breaks)
    assert await cache.begun_bytes(SHA) == 1000
    await cache.take(SHA, len(DATA), goes_on)
    assert await cache.has(SHA, len(DATA))


async def test_after_a_cancelled_try_the_next_writes_elsewhere_as_a_thread_may_still_be_writing(cache):
    begun, places = asyncio.Event(), []

    async def hangs(path):
        places.append(path)
        path.write_bytes(b"half")
        begun.set()
        await asyncio.Event().wait()

    async def works(path):
        places.append(path)
        assert not path.exists()
        path.write_bytes(DATA)

    task = asyncio.create_task(cache.take(SHA, len(DATA), hangs))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await cache.take(SHA, len(DATA), works)
    assert places[0] != places[1]
    assert not places[0].exists()


@pytest.mark.parametrize(
    "damage", [lambda path: path.write_bytes(b"x" + DATA[1:]), lambda path: path.write_bytes(b"")]
)
async def test_a_damaged_file_counts_as_absent(cache, tmp_path, damage, caplog):
    await cache.take(SHA, len(DATA), whole)
    damage(tmp_path / "agent-cache" / SHA)
    assert not await cache.has(SHA, len(DATA))
    assert "damaged" in caplog.text
    await cache.take(SHA, len(DATA), whole)
    assert await cache.has(SHA, len(DATA))


async def test_what_this_process_has_verified_is_not_read_again(cache, monkeypatch):
    await cache.take(SHA, len(DATA), whole)
    monkeypatch.setattr(
        "codefyui_core.agent.carrying.cache.sha256_of", lambda _path: pytest.fail("read again")
    )
    assert await cache.has(SHA, len(DATA))


async def test_a_link_in_the_cache_is_not_followed(cache, tmp_path):
    elsewhere = tmp_path / "secret"
    elsewhere.write_bytes(DATA)
    (tmp_path / "agent-cache" / SHA).symlink_to(elsewhere)
    assert not await cache.has(SHA, len(DATA))
    with pytest.raises(OSError, match=r"symbolic|levels"):
        cache.open(SHA)


@pytest.mark.spec("transfer/agent-cache-safe-to-delete")
async def test_the_folder_may_be_deleted_at_any_time(cache, tmp_path):
    folder = tmp_path / "agent-cache"

    def remove():
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()

    await cache.take(SHA, len(DATA), whole)
    remove()
    assert not await cache.has(SHA, len(DATA))

    async def interrupted(path):
        path.write_bytes(DATA)
        remove()

    assert await cache.begun_bytes(SHA) == 0
    with pytest.raises(Corrupt):
        await cache.take(SHA, len(DATA), interrupted)
    assert await cache.begun_bytes(SHA) == 0
    await cache.take(SHA, len(DATA), whole)
    assert await cache.has(SHA, len(DATA))


async def test_a_start_removes_what_dead_agents_left_half_fetched_and_nothing_else(tmp_path):
    folder = tmp_path / "agent-cache"
    dead = InputCache(folder, owner("d" * 32, pid=2**22 + 1), LOG)
    lives = InputCache(folder, owner("1" * 32, pid=os.getppid(), started=0.0, host="elsewhere"), LOG)
    for one in (dead, lives):
        one.start()

        async def breaks(path):
            path.write_bytes(b"half")
            raise Busy("the line broke")

        with pytest.raises(Busy):
            await one.take(SHA, len(DATA), breaks)
    for number, age_s in enumerate((ORPHAN_S - 60, ORPHAN_S + 60)):
        orphan = folder / f".{SHA}.{number}{'0' * 11}.0.part"
        orphan.write_bytes(b"half")
        os.utime(orphan, (time.time() - age_s,) * 2)
    (folder / SHA).write_bytes(DATA)
    InputCache(folder, owner("2" * 32), LOG).start()
    assert names(tmp_path) == sorted([f".{SHA}.{'1' * 12}.0.part", f".{SHA}.0{'0' * 11}.0.part", SHA])


@pytest.mark.spec("transfer/agent-cache-never-auto-cleaned")
async def test_an_end_of_the_agent_leaves_every_whole_file(cache, tmp_path):
    await cache.take(SHA, len(DATA), whole)
    cache.close()
    assert [path.name for path in (tmp_path / "agent-cache").iterdir()] == [SHA]
