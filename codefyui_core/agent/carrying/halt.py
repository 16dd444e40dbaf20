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
        self._limits: set[asyncio.Timeout] = set()
        """Of what is under way."""

    def give(self) -> None:
        if not self.given:
            self.given = True
            self._event.set()
            for limit in self._limits:
                _soon(limit)

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
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._limits.add(limit)
                if self.given:
                    _soon(limit)
                return await work
        except Exception as error:
            if limit.expired():
                raise TransferStopped("the run was stopped") from error
            raise
        finally:
            self._limits.discard(limit)

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


def _soon(limit: asyncio.Timeout) -> None:
    limit.reschedule(asyncio.get_running_loop().time() + SOON_S)
