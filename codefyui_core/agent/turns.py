"""Whose batch goes over the line next. Pure: what is read when comes from the caller.

Attempts that keep up with their run send what gathered for a while; those that are behind, because their run is
over or the line was away, send one full batch after the other in the room that the first leave.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from codefyui_core.wire.limits import BATCH_WAIT_S

Key = tuple[str, int]
"""Run and number of an attempt."""
EARLY_S = 0.001
"""A sleep until a turn may end a hair early; the turn has come all the same."""
BEFORE_BACKLOG = 8
"""Batches of live attempts before one that is behind has its turn, however many of them are waiting."""


@dataclass(slots=True)
class _Last:
    """The last batch of an attempt."""

    at: float = float("-inf")
    full: bool = False
    """It left something behind, so there is nothing to gather."""


class Turns:
    """The attempts of one agent in the order of their last batches. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._lasts: dict[Key, _Last] = {}
        self._live_in_a_row = 0

    def add(self, key: Key) -> None:
        self._lasts[key] = _Last()

    def forget(self, key: Key) -> None:
        self._lasts.pop(key, None)

    def behind(self, key: Key) -> bool:
        """Its last batch couldn't hold all that was there."""
        return self._lasts[key].full

    def wait_s(self, waiting: Iterable[Key], now: float) -> float:
        """How long until one of ``waiting`` has its turn; 0 if there is none that waits."""
        return min((self._due(self._lasts[key]) - now for key in waiting), default=0.0)

    def order(self, waiting: Iterable[Key], is_live: Callable[[Key], bool], now: float) -> list[Key]:
        """Those that may send now: live ones first, in each kind the one whose last batch is the oldest."""
        due = [key for key in waiting if self._due(self._lasts[key]) <= now + EARLY_S]
        backlog_first = self._live_in_a_row >= BEFORE_BACKLOG
        return sorted(due, key=lambda key: (is_live(key) is backlog_first, self._lasts[key].at))

    def sent(self, key: Key, now: float, *, live: bool, full: bool) -> None:
        """A batch of it is under way. ``full``: it couldn't hold all that was there."""
        self._live_in_a_row = self._live_in_a_row + 1 if live else 0
        last = self._lasts[key]
        last.at, last.full = now, full

    def _due(self, last: _Last) -> float:
        return float("-inf") if last.full else last.at + BATCH_WAIT_S
