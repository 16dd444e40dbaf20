"""How long failing transfers of one run are tried again: one window for all of its files. Pure."""

from dataclasses import dataclass

FIRST_S = 1.0
MOST_S = 30.0


@dataclass(slots=True)
class Window:
    """Opens at the first failure, closes at any success. Times are seconds of one clock."""

    grace_s: float
    since: float | None = None
    """Of the first failure after the last success."""

    def failed(self, now: float) -> None:
        if self.since is None:
            self.since = now

    def succeeded(self) -> None:
        self.since = None

    def paused(self) -> None:
        """After sleep of the machine or the process: the window starts again in full with the next failure."""
        self.since = None

    def used_up(self, now: float) -> bool:
        """From now on, each file is tried once."""
        return self.since is not None and now - self.since >= self.grace_s


@dataclass(slots=True)
class Waits:
    """Between the tries for one file: doubling, never shorter than the one before, at most a quarter of the grace."""

    grace_s: float
    last_s: float = 0.0

    def next_s(self, retry_after_s: float | None = None) -> float:
        """``retry_after_s``: what the other side asked for; obeyed up to the whole grace."""
        most = min(MOST_S, self.grace_s / 4)
        wanted = min(most, max(FIRST_S, self.last_s * 2))
        asked = min(retry_after_s or 0.0, self.grace_s)
        self.last_s = max(self.last_s, wanted, asked)
        return self.last_s
