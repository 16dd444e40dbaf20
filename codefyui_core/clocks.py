"""The clocks that decide: a system clock that keeps running in sleep, and the attentive clock of a process.

Graces, silences and waits are counted by the attentive clock alone, so that a machine that slept, or a server
that couldn't write its database, doesn't hold the lost time against anybody.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum

from codefyui_core.plugin.hosts import Clock

TICK_S = 1.0
PAUSE_S = 5.0
"""A longer gap between two ticks was a pause: sleep, SIGSTOP, or a blocked loop."""


def elapsed_s() -> float:
    """Seconds of a clock that also runs while the machine sleeps, and that no one can set."""
    if sys.platform == "win32":
        return time.monotonic()
    if sys.platform == "darwin":
        return time.clock_gettime(time.CLOCK_MONOTONIC)
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SystemClock:
    """The machine's own time."""

    def monotonic(self) -> float:
        return elapsed_s()

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class AfterPause(Enum):
    """What a pause does to a timer."""

    RESTART = "restart"
    """It starts again in full: a grace, a silence."""
    CONTINUE = "continue"
    """It goes on with what was left: a wait in a queue, a beat."""


class Timer:
    """One deadline of an attentive clock. Calls back once, from the tick that reaches it."""

    __slots__ = ("_after_pause", "_callback", "_clock", "_delay_s", "deadline")

    def __init__(
        self, clock: "AttentiveClock", delay_s: float, callback: Callable[[], None], after_pause: AfterPause
    ) -> None:
        self._clock = clock
        self._delay_s = delay_s
        self._callback = callback
        self._after_pause = after_pause
        self.deadline = clock.monotonic() + delay_s

    @property
    def left_s(self) -> float:
        return max(0.0, self.deadline - self._clock.monotonic())

    def restart(self, delay_s: float | None = None) -> None:
        """Count again from now, also when it has fired or was cancelled."""
        if delay_s is not None:
            self._delay_s = delay_s
        self.deadline = self._clock.monotonic() + self._delay_s
        self._clock._timers.add(self)

    def cancel(self) -> None:
        self._clock._timers.discard(self)

    def paused(self) -> None:
        """Called by the clock."""
        if self._after_pause is AfterPause.RESTART:
            self.deadline = self._clock.monotonic() + self._delay_s

    def fire(self) -> None:
        """Called by the clock."""
        self.cancel()
        self._callback()


class AttentiveClock:
    """Counts only the time in which this process was awake and able to do its duty.

    ``able`` says whether it is able now (a server: listening, its database writable). ``run`` ticks once a
    second for as long as the process lives; timers fire within a tick, so they are up to a second late.
    """

    def __init__(self, source: Clock | None = None, *, able: Callable[[], bool] = lambda: True) -> None:
        self._source: Clock = source or SystemClock()
        self._able = able
        self._attentive_s = 0.0
        self._last = self._source.monotonic()
        self._timers: set[Timer] = set()
        self._listeners: list[Callable[[], None]] = []

    def monotonic(self) -> float:
        """Attentive seconds. Stands still between ticks."""
        return self._attentive_s

    def now(self) -> datetime:
        """Wall time, to be shown and for what must hold over restarts; never for a grace."""
        return self._source.now()

    async def sleep(self, seconds: float) -> None:
        """Until that many attentive seconds have passed."""
        done = asyncio.get_running_loop().create_future()
        timer = self.timer(seconds, lambda: None if done.done() else done.set_result(None))
        try:
            await done
        finally:
            timer.cancel()

    async def delay(self, seconds: float) -> None:
        """Wait by the source, able or not: before trying again what this process wasn't able to do."""
        await self._source.sleep(seconds)

    def timer(
        self,
        delay_s: float,
        callback: Callable[[], None],
        *,
        after_pause: AfterPause = AfterPause.CONTINUE,
    ) -> Timer:
        """Call back after ``delay_s`` attentive seconds."""
        timer = Timer(self, delay_s, callback, after_pause)
        self._timers.add(timer)
        return timer

    def on_pause(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Be told after each pause, before any timer fires. The answer ends it."""
        self._listeners.append(listener)

        def remove() -> None:
            with suppress(ValueError):
                self._listeners.remove(listener)

        return remove

    async def run(self) -> None:
        """Tick until cancelled."""
        self._last = self._source.monotonic()
        while True:
            await self._source.sleep(TICK_S)
            self.tick()

    def tick(self) -> None:
        """One look at the time. After a pause nothing fires until the next tick, so that what waited in the
        sockets is read first.
        """
        now = self._source.monotonic()
        elapsed, self._last = now - self._last, now
        if elapsed > PAUSE_S:
            self._paused()
            return
        if self._able():
            self._attentive_s += max(0.0, elapsed)
            self._fire()

    def _paused(self) -> None:
        for timer in list(self._timers):
            timer.paused()
        for listener in list(self._listeners):
            listener()

    def _fire(self) -> None:
        due = [timer for timer in self._timers if timer.deadline <= self._attentive_s]
        for timer in sorted(due, key=lambda timer: timer.deadline):
            if timer in self._timers and timer.deadline <= self._attentive_s:
                timer.fire()
