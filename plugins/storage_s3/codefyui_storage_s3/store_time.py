"""What time it is at a store. Its answers tell, so that a machine whose own clock is off signs what the store takes."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

SLACK = timedelta(seconds=1)
"""Answers tell whole seconds."""
WORTH_SAYING = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """An answer's date, when it came by the monotonic clock, and by how much it may be too early."""

    date: datetime
    came_at: float
    late_by: timedelta


class StoreTime:
    """Of one store. Threads may share it."""

    def __init__(
        self,
        own_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._own_clock = own_clock
        self._monotonic = monotonic
        self._told: _Told | None = None

    def told(self, date: datetime, took_s: float) -> None:
        """By an answer that just came, ``took_s`` after it was asked for."""
        self._told = _Told(date=date, came_at=self._monotonic(), late_by=timedelta(seconds=took_s) + SLACK)

    def now(self) -> datetime:
        """By the own clock while it agrees; else the store's, however the own one is set meanwhile."""
        own = self._own_clock()
        return own - self._ahead(own)

    def ahead(self) -> timedelta:
        """Of the own clock, before the store's. 0 while they agree, and before anything is known."""
        return self._ahead(self._own_clock())

    @property
    def corrects(self) -> bool:
        return self.ahead() != timedelta(0)

    def _ahead(self, own: datetime) -> timedelta:
        told = self._told
        if told is None:
            return timedelta(0)
        ahead = own - told.date - timedelta(seconds=self._monotonic() - told.came_at)
        return timedelta(0) if -SLACK <= ahead <= told.late_by + SLACK else ahead


def clock_off(ahead: timedelta, machine: str) -> str:
    """For people. ``machine`` is whose clock it is: "worker" or "server"."""
    minutes = round(abs(ahead).total_seconds() / 60)
    if minutes == 0:
        return f"the {machine}'s clock is off from the bucket's; correct it"
    way = "ahead of" if ahead > timedelta(0) else "behind"
    return f"the {machine}'s clock is off by {minutes} min, {way} the bucket's; correct it"
