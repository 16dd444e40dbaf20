"""Which attempt's items the line sends next, and how many of them."""

import asyncio
from collections.abc import Mapping

from codefyui_core.wire.limits import BATCH_BYTES

from .attempts import Attempt, Batch
from .turns import Turns

WORTH_PART = 2
"""Of a full batch, what has to fit for one to be sent: a window that is nearly shut makes no tiny ones."""
BACKLOG_PART = 2
"""Of the window, what a backlog may fill beside attempts that keep up."""


class Outgoing:
    """Of the attempts of an agent, in turn; it sees them come and go by itself."""

    def __init__(self, attempts: Mapping[tuple[str, int], Attempt]) -> None:
        self._attempts = attempts
        self._turns = Turns()

    def add(self, key: tuple[str, int]) -> None:
        self._turns.add(key)

    def forget(self, key: tuple[str, int]) -> None:
        self._turns.forget(key)

    def gathering_s(self, window_bytes: int) -> float:
        """How long the next batch still gathers what comes, in seconds; not positive: it doesn't."""
        return self._turns.wait_s(self._rooms(window_bytes), asyncio.get_running_loop().time())

    async def next_batch(self, window_bytes: int) -> Batch | None:
        """Of the attempts in turn; None when nothing may be sent now."""
        now = asyncio.get_running_loop().time()
        rooms = self._rooms(window_bytes)
        for key in self._turns.order(rooms, self._is_live, now):
            attempt = self._attempts.get(key)
            if attempt is None:
                continue
            live = self._is_live(key)
            batch = await attempt.batch(min(BATCH_BYTES, rooms[key]))
            if batch is not None and key in self._attempts:
                self._turns.sent(key, now, live=live, full=attempt.sendable)
                return batch
        return None

    def _rooms(self, window_bytes: int) -> Mapping[tuple[str, int], int]:
        """Bytes that each attempt with something to send may send now, where that is worth a batch. Old events
        leave room for live ones: what fills the window is taken in before what comes next.
        """
        unacked = sum(one.unacked_bytes for one in self._attempts.values())
        live = {key for key in self._attempts if self._is_live(key)}
        backlog = window_bytes // BACKLOG_PART if live else window_bytes
        rooms = {
            key: (window_bytes if key in live else backlog) - unacked
            for key, one in self._attempts.items()
            if one.sendable
        }
        worth = min(BATCH_BYTES, window_bytes) // WORTH_PART
        return {key: room for key, room in rooms.items() if room >= worth}

    def _is_live(self, key: tuple[str, int]) -> bool:
        """Its run executes, and the line keeps up with it."""
        return not (self._attempts[key].ended or self._turns.behind(key))
