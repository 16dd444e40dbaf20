"""An order to end transfers, heard on the event loop and in the threads of sessions."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from codefyui_core.errors import TransferStopped

SOON_S = 1.0
"""For a transfer to hear of it by its own next step, which keeps what it has; then it is cancelled."""
T = TypeVar("T")


class Halt:
    """Given once, and stays."""

    def __init__(self) -> None:
        self.given = False
        self._event = asyncio.Event()

    def give(self) -> None:
        self.given = True
        self._event.set()

    def check(self) -> None:
        """From any thread. Raises: TransferStopped."""
        if self.given:
            raise TransferStopped("the run was stopped")

    async def wait(self) -> None:
        await self._event.wait()

    async def unless(self, work: Coroutine[Any, Any, T]) -> T:
        """What comes of the work; it may still end well when the halt comes meanwhile.

        Raises: TransferStopped; what the work raises.
        """
        working = asyncio.ensure_future(work)
        halted = asyncio.ensure_future(self.wait())
        try:
            await asyncio.wait({working, halted}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                await asyncio.wait({working}, timeout=SOON_S)
            if working.done():
                return working.result()
            raise TransferStopped("the run was stopped")
        finally:
            halted.cancel()
            if not working.done():
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)

    async def pause(self, *until: Coroutine[Any, Any, object]) -> None:
        """Until one of them is done. Raises: TransferStopped."""
        waits = [asyncio.ensure_future(one) for one in (*until, self.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        self.check()
