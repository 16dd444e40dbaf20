"""The one run of a one-shot agent: taken once, recorded or given up, and what that makes of the exit status."""

import asyncio
from collections.abc import Callable
from enum import IntEnum

from codefyui_core.clocks import AttentiveClock
from codefyui_core.plugin.views import RunStatus
from codefyui_core.wire.messages import AttemptKey

from .advice import FATAL_STATUS

LOOK_S = 1.0


class Status(IntEnum):
    """Exit statuses of a one-shot agent."""

    SUCCEEDED = 0
    NOT_SUCCEEDED = 1
    """The run ended otherwise, or how it ended isn't recorded."""
    REFUSED = FATAL_STATUS
    STOPPED_BEFORE = 3
    """No run had come."""
    NOT_STARTED = 4


class OneRun:
    """The first run that is assigned, and what became of it."""

    def __init__(self) -> None:
        self.taken: AttemptKey | None = None
        self.over = asyncio.Event()
        """It is recorded, or can't be any more."""
        self._recorded: str | None = None

    def take(self, key: AttemptKey) -> None:
        self.taken = AttemptKey(run_id=key.run_id, attempt=key.attempt)

    def ended(self, key: AttemptKey, recorded: str | None) -> None:
        """``recorded``: the final status at the control plane; None: unknown there."""
        if self.taken is not None and (key.run_id, key.attempt) == (self.taken.run_id, self.taken.attempt):
            self._recorded = recorded
            self.over.set()

    @property
    def status(self) -> Status:
        if self.taken is None:
            return Status.STOPPED_BEFORE
        succeeded = self._recorded == RunStatus.SUCCEEDED.value
        return Status.SUCCEEDED if succeeded else Status.NOT_SUCCEEDED


class Patience:
    """Counts attentive time in which a run that is over waits without contact. A pause starts it again."""

    def __init__(
        self,
        clock: AttentiveClock,
        *,
        alone: Callable[[], bool],
        contacts: Callable[[], int],
        grace_s: Callable[[], float],
    ) -> None:
        """``contacts``: how often there was one, so that a short one isn't missed."""
        self.over = asyncio.Event()
        self._clock = clock
        self._alone = alone
        self._grace_s = grace_s
        self._contacts = contacts
        self._counted = contacts()
        self._since: float | None = None
        self._remove = clock.on_pause(self._again)
        self._timer = clock.timer(LOOK_S, self._look)

    def close(self) -> None:
        self._timer.cancel()
        self._remove()

    def _again(self) -> None:
        self._since = None

    def _look(self) -> None:
        now, contacts = self._clock.monotonic(), self._contacts()
        if not self._alone():
            self._since = None
        elif self._since is None or contacts != self._counted:
            self._since = now
        self._counted = contacts
        if self._since is not None and now - self._since >= self._grace_s():
            self.over.set()
        self._timer.restart()
