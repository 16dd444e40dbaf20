"""How far one try of a transfer is, and that it goes on at all."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from codefyui_core.clocks import AttentiveClock
from codefyui_core.errors import Busy

from .halt import Halt

LOOK_S = 5.0
STILL_S = 600.0
"""Without a sign, a try is taken for hanging. The other side may hash a large file meanwhile."""
T = TypeVar("T")


class Meter:
    """Implements ``plugin.storage.Progress``."""

    def __init__(self, halt: Halt) -> None:
        self.done_bytes = 0
        self._n_signs = 0
        """No bytes are a sign, too: of a session in which others have the turn."""
        self._halt = halt

    def advance(self, n_bytes: int) -> None:
        self.done_bytes += n_bytes
        self._n_signs += 1
        self._halt.check()

    async def watch(self, work: Coroutine[Any, Any, T], clock: AttentiveClock) -> T:
        """What comes of the work. Raises: Busy when it hangs; what the work raises."""
        seen, since = self._n_signs, clock.monotonic()

        def look() -> None:
            nonlocal seen, since
            if self._n_signs != seen:
                seen, since = self._n_signs, clock.monotonic()
            if clock.monotonic() - since < STILL_S:
                timer.restart()
            else:
                limit.reschedule(asyncio.get_running_loop().time())

        limit = asyncio.timeout(None)
        timer = clock.timer(LOOK_S, look)
        try:
            async with limit:
                return await work
        except Exception as error:
            if limit.expired():
                raise Busy(f"nothing moved for {STILL_S:g} s") from error
            raise
        finally:
            timer.cancel()
