"""Files that threads read while their transfer goes on, or ends."""

import asyncio
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from codefyui_core.plugin import Refused
from codefyui_storage_transfer import ahead
from codefyui_storage_transfer.ahead import blocks, sha256_of_file, through
from codefyui_storage_transfer.models import MIB


async def test_however_often_a_transfer_is_cancelled_its_thread_ends_first() -> None:
    go_on, done = threading.Event(), []

    def work() -> None:
        go_on.wait(20)
        done.append(True)

    doing = asyncio.create_task(through(work))
    for _ in range(3):
        await asyncio.sleep(0)
        doing.cancel()
    await asyncio.sleep(0)
    assert not doing.done()
    go_on.set()
    with suppress(asyncio.CancelledError):
        await doing
    assert doing.cancelled()
    assert done == [True]


async def test_nothing_is_read_beyond_the_last_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = tmp_path / "a.pt", ahead._read
    path.write_bytes(bytes(2 * MIB))
    asked: list[tuple[int, int]] = []

    def counted(file: object, start: int, n_bytes: int) -> bytes:
        asked.append((start, n_bytes))
        return read(file, start, n_bytes)  # type: ignore[arg-type]

    monkeypatch.setattr(ahead, "_read", counted)
    with path.open("rb", buffering=0) as file:
        assert len([one async for one in blocks(file, MIB // 2, MIB)]) == 1
    assert asked == [(MIB // 2, MIB)]


async def test_a_file_that_became_shorter_has_no_hash(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(bytes(MIB))
    with path.open("rb", buffering=0) as file, pytest.raises(Refused, match="became shorter"):
        await sha256_of_file(file, MIB + 1)
