"""How much each worker may send ahead of its acknowledgements, so that all together fit into memory."""

from typing import Protocol

from codefyui_core.wire.limits import KIB, MIB, WINDOW_BYTES

ALL_BYTES = 64 * MIB
"""Sent and not yet acknowledged, of all sessions together."""
LEAST_BYTES = 16 * KIB
"""A narrower window would only make batches tiny; ALL_BYTES has room for 4,096 of these."""


class Windowed(Protocol):
    """A session, as far as its window goes."""

    def narrow(self, window_bytes: int) -> None:
        """Tell its agent at once, if it was told more."""


def share(sessions: int, all_bytes: int = ALL_BYTES) -> int:
    """The window of one of so many: halved until all fit, so that few comings and goings change it."""
    window = WINDOW_BYTES
    while window * sessions > all_bytes and window > LEAST_BYTES:
        window //= 2
    return window


class Windows:
    """The windows of all connected sessions."""

    def __init__(self, all_bytes: int = ALL_BYTES) -> None:
        self._all_bytes = all_bytes
        self._sessions: set[Windowed] = set()
        self.now = share(0, all_bytes)
        """Of each session, in bytes. Who was told less gets to know with its next acknowledgement."""

    def join(self, session: Windowed) -> int:
        """One more, whose welcome says the answer. If there is less for everybody, everybody is told."""
        before = self.now
        self._sessions.add(session)
        self.now = share(len(self._sessions), self._all_bytes)
        if self.now < before:
            for other in self._sessions - {session}:
                other.narrow(self.now)
        return self.now

    def leave(self, session: Windowed) -> None:
        """Idempotent."""
        self._sessions.discard(session)
        self.now = share(len(self._sessions), self._all_bytes)
