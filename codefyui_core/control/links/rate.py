"""Slows down who guesses tokens: refused enrollments are counted for each place that they come from."""

from collections import deque

from codefyui_core.plugin.hosts import Clock

from .errors import TooManyAttempts

REFUSALS = 10
WITHIN_S = 60.0
PLACES = 10_000
"""Places that are remembered at once; the oldest go first."""


class RateLimit:
    """At most REFUSALS refused attempts within WITHIN_S for a place. Successful ones don't count, so that a
    job array behind one address can enroll.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused: dict[str, deque[float]] = {}

    def check(self, place: str) -> None:
        """Raises: TooManyAttempts."""
        times = self._recent(place)
        if times is not None and len(times) >= REFUSALS:
            raise TooManyAttempts(max(1.0, times[0] + WITHIN_S - self._clock.monotonic()))

    def refused(self, place: str) -> None:
        """One more attempt from there was refused."""
        times = self._refused.pop(place, None) or deque(maxlen=REFUSALS)
        times.append(self._clock.monotonic())
        self._refused[place] = times
        while len(self._refused) > PLACES:
            del self._refused[next(iter(self._refused))]

    def _recent(self, place: str) -> deque[float] | None:
        times = self._refused.get(place)
        while times and times[0] <= self._clock.monotonic() - WITHIN_S:
            times.popleft()
        return times
