"""Tries a transfer until it works, is refused, or the run's window is used up. Sessions make one honest try a call."""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from codefyui_core.clocks import AttentiveClock
from codefyui_core.errors import Busy, CodefyError, Corrupt, Expired, Refused, StorageProblem
from codefyui_core.wire.messages import AttemptKey, WantGrant

from .grants import Grants
from .halt import Halt
from .meter import Meter
from .window import Waits, Window

ASK_EVERY_S = 1.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What transfers need of the connection to the control plane."""

    want_grant: Callable[[WantGrant], None]
    """Lost while there is none."""
    contact: Callable[[], Awaitable[None]]
    """Returns when there is a connection; at once where nobody would wait for one."""
    news: Callable[[], Awaitable[None]]
    """Returns when there is a new connection."""


class Tries:
    """Of one attempt."""

    def __init__(
        self,
        key: AttemptKey,
        *,
        grace_s: float,
        grants: Grants,
        line: Line,
        clock: AttentiveClock,
        halt: Halt,
        log: logging.Logger,
    ) -> None:
        self.halt = halt
        self.window = Window(grace_s)
        self._key = key
        self._grants = grants
        self._line = line
        self._clock = clock
        self._log = log
        self._asked: tuple[int, float] | None = None
        """For what came after which version, and when."""
        self._remove = clock.on_pause(self.window.paused)

    def close(self) -> None:
        self._remove()

    async def done(self, name: str, once: Callable[[Meter], Coroutine[Any, Any, T]]) -> T:
        """The result of the try that worked.

        Raises: StorageProblem of the last one; TransferStopped.
        """
        waits = Waits(self.window.grace_s)
        whole_again = True
        while True:
            self.halt.check()
            last = self.window.used_up(self._clock.monotonic())
            if last:
                await self.halt.pause(_awaited(self._line.contact()))
            version = self._grants.given
            try:
                result = await self._once(name, once)
            except Corrupt as error:
                self._log.warning("%s: %s", name, error)
                if not whole_again:
                    raise
                whole_again = False
            except (Busy, Expired) as error:
                if last:
                    raise
                await self._wait(name, error, waits, version)
            else:
                self.window.succeeded()
                return result

    async def ticket(self) -> None:
        """Until the ticket is there that went with the process before.

        Raises: Busy when it didn't come within the window; TransferStopped.
        """
        waits = Waits(self.window.grace_s)
        while self._grants.ticket is None:
            if self.window.used_up(self._clock.monotonic()):
                raise Busy("its storage ticket didn't come again")
            self.window.failed(self._clock.monotonic())
            self._ask("lost", have=0)
            await self.halt.pause(self._clock.delay(waits.next_s()), self._grants.whole())

    async def _once(self, name: str, once: Callable[[Meter], Coroutine[Any, Any, T]]) -> T:
        meter = Meter(self.halt)
        try:
            return await self.halt.unless(meter.watch(once(meter), self._clock))
        except CodefyError as error:
            if isinstance(error, StorageProblem) or self.halt.given:
                raise
            raise Refused(f"{name}: {error.message}", code=error.code) from error
        except OSError as error:
            raise Refused(f"{name}: {error}", code="storage.refused") from error
        except Exception as error:
            self._log.exception("the storage backend failed with %s", name)
            raise Refused(f"{name}: its storage backend failed: {error}") from error

    async def _wait(self, name: str, error: Busy | Expired, waits: Waits, version: int) -> None:
        """For time to pass, or for the next grant. One that came meanwhile is used at once."""
        expired = isinstance(error, Expired)
        if expired and self._grants.given > version:
            return
        self.window.failed(self._clock.monotonic())
        wait_s = waits.next_s(error.retry_after_s if isinstance(error, Busy) else None)
        self._log.info("%s: %s; tried again within %g s", name, error, wait_s)
        passed = self._clock.delay(wait_s)
        if expired:
            self._ask("expired", have=version)
            await self.halt.pause(passed, self._grants.newer(version))
        else:
            await self.halt.pause(passed, _awaited(self._line.news()))

    def _ask(self, why: str, *, have: int) -> None:
        """Once a second at most, however many files wait for it."""
        key, now = self._key, self._clock.monotonic()
        if self._asked is not None and self._asked[0] == have and now - self._asked[1] < ASK_EVERY_S:
            return
        self._asked = have, now
        self._line.want_grant(WantGrant(run_id=key.run_id, attempt=key.attempt, have_version=have, why=why))


async def _awaited(work: Awaitable[None]) -> None:
    await work
