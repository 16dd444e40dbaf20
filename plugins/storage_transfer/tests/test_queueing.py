"""Files that wait while others of their session have the turn."""

import asyncio
from collections.abc import Callable

import pytest

from codefyui_core.plugin import TransferStopped
from codefyui_storage_transfer import queueing
from codefyui_storage_transfer.queueing import Queue

DEADLINE_S = 10


class Signs:
    """Counts them."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.stopped = False

    def advance(self, n_bytes: int) -> None:
        self.heard.append(n_bytes)
        if self.stopped:
            raise TransferStopped("stopped")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queueing, "SIGN_S", 0.001)


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not met():  # noqa: ASYNC110  any condition
            await asyncio.sleep(0.001)


async def test_a_file_that_waits_gives_signs_while_others_move() -> None:
    queue, waiting, stopped, moving = Queue(), Signs(), Signs(), Signs()
    stopped.stopped = True
    with queue.waits(stopped), queue.waits(waiting):
        for count in (1, 2):
            queue.watched(moving).advance(10)
            await until(lambda count=count: len(waiting.heard) == count)  # type: ignore[misc]
    assert (waiting.heard, moving.heard) == ([0, 0], [10, 10])


async def test_a_file_gives_no_sign_while_nothing_moves_and_once_it_waits_no_more() -> None:
    queue, waiting, looks = Queue(), Signs(), Signs()
    with queue.waits(waiting):
        queue.watched(looks).advance(0)
        await asyncio.sleep(0.01)
        assert waiting.heard == []
    with queue.waits(looks):
        queue.moved()
        await until(lambda: len(looks.heard) == 2)
    assert waiting.heard == []
    assert queue._timer is None
