"""Storage backends that fail in one known way each."""

import asyncio
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from codefyui_core.errors import Busy, Expired, Refused
from codefyui_core.plugin import Grant

from .folder_backend import FolderBackend, Step

_SENDING = frozenset({Step.FETCH, Step.PUBLISH})


class SlowBackend(FolderBackend):
    """Each of the given steps waits until the test calls ``release``."""

    name = "slow"
    title = "Slow"

    def __init__(self, spool: Path, held: Collection[Step] = _SENDING) -> None:
        super().__init__(spool)
        self._held = frozenset(held)
        self._released = asyncio.Event()
        self.waiting = asyncio.Event()
        """Set once somebody waits."""

    def release(self) -> None:
        self._released.set()

    async def before(self, step: Step) -> None:
        if step in self._held and not self._released.is_set():
            self.waiting.set()
            await self._released.wait()


class BusyBackend(FolderBackend):
    """Each of the given steps is Busy the first ``times`` times, then works."""

    name = "busy"
    title = "Busy"

    def __init__(
        self, spool: Path, times: int = 2, at: Collection[Step] = frozenset({Step.STAGE, *_SENDING})
    ) -> None:
        super().__init__(spool)
        self._times = times
        self._at = frozenset(at)
        self._tried: Counter[Step] = Counter()

    async def before(self, step: Step) -> None:
        self._tried[step] += 1
        if step in self._at and self._tried[step] <= self._times:
            raise Busy(
                f"{step.value}: try {self._tried[step]} of {self._times} that fail", retry_after_s=0.01
            )


class RefusingBackend(FolderBackend):
    """Each of the given steps is refused for good."""

    name = "refusing"
    title = "Refusing"

    def __init__(self, spool: Path, at: Collection[Step] = frozenset({Step.STAGE})) -> None:
        super().__init__(spool)
        self._at = frozenset(at)

    async def before(self, step: Step) -> None:
        if step in self._at:
            raise Refused(f"{step.value}: refused by the test", code="test.refused")


class ExpiringBackend(FolderBackend):
    """A grant serves one transfer; the next is Expired until a new grant was made."""

    name = "expiring"
    title = "Expiring"

    def __init__(self, spool: Path) -> None:
        super().__init__(spool)
        self.granted = 0
        self._left = 0

    def grant_now(self) -> Grant:
        self.granted += 1
        self._left = 1
        return Grant(expires_in_s=60, renew_in_s=30)

    async def before(self, step: Step) -> None:
        if step not in _SENDING:
            return
        if self._left == 0:
            raise Expired("the grant ran out")
        self._left -= 1


class CorruptBackend(FolderBackend):
    """The first ``times`` inputs arrive with a byte changed, and with the hash of what arrived."""

    name = "corrupt"
    title = "Corrupt"

    def __init__(self, spool: Path, times: int = 1) -> None:
        super().__init__(spool)
        self._times = times

    def content(self, data: bytes) -> bytes:
        if self._times == 0:
            return data
        self._times -= 1
        return bytes([data[0] ^ 1]) + data[1:] if data else b"x"


class CrashingBackend(FolderBackend):
    """A plugin with a bug: the given steps raise what no plugin should."""

    name = "crashing"
    title = "Crashing"

    def __init__(self, spool: Path, at: Collection[Step] = frozenset(Step)) -> None:
        super().__init__(spool)
        self._at = frozenset(at)

    async def before(self, step: Step) -> None:
        if step in self._at:
            raise RuntimeError(f"{step.value}: a bug in the plugin")
