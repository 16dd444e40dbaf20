"""How far one try of a transfer is, and that it goes on at all."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from codefyui_core.clocks import AttentiveClock
from codefyui_core.errors import Busy

from .halt import Halt

LOOK_S = 5.0
STILL_S = 600.0
"""Without a byte, a try is taken for hanging. The other side may hash a large file meanwhile."""
T = TypeVar("T")


class Meter:
    """Implements ``plugin.storage.Progress``."""

    def __init__(self, halt: Halt) -> None:
        self.done_bytes = 0
        self._halt = halt

    def advance(self, n_bytes: int) -> None:
        self.done_bytes += n_bytes
        self._halt.check()

    async def watch(self, work: Coroutine[Any, Any, T], clock: AttentiveClock) -> T:
        """What comes of the work. Raises: Busy when it hangs; what the work raises."""
        working, still = asyncio.ensure_future(work), asyncio.ensure_future(self._still(clock))
        try:
            await asyncio.wait({working, still}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise Busy(f"nothing moved for {STILL_S:g} s")
        finally:
            working.cancel()
            still.cancel()
            await asyncio.gather(working, still, return_exceptions=True)

    async def _still(self, clock: AttentiveClock) -> None:
        seen, since = self.done_bytes, clock.monotonic()
        while clock.monotonic() - since < STILL_S:
            await clock.delay(LOOK_S)
            if self.done_bytes != seen:
                seen, since = self.done_bytes, clock.monotonic()
