"""Who listens to runs: fed after each commit, from what was committed."""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from codefyui_core.runs.events import CLOSING, NewEvent
from codefyui_core.runs.steps import Change

LAG = 1_000
"""Events that a listener may be behind before it is sent back to reading pages."""


@dataclass(slots=True, eq=False)
class Follower:
    """One listener to one run's log. ``events`` holds what was committed since it last looked."""

    events: deque[NewEvent] = field(default_factory=deque)
    lagging: bool = False
    gone: bool = False
    """The run was deleted."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def feed(self, events: Sequence[NewEvent]) -> None:
        if not self.lagging:
            self.events.extend(events)
            if len(self.events) > LAG:
                self.events.clear()
                self.lagging = True
        self.wake.set()

    def begin(self) -> None:
        """What was missed is about to be read from the database; from here on everything is kept again."""
        self.lagging = False
        self.take()

    def keeps_up(self) -> bool:
        return not self.lagging and not self.gone

    def end(self) -> None:
        self.gone = True
        self.wake.set()

    def take(self) -> list[NewEvent]:
        """What came, in order; ``wake`` is cleared."""
        self.wake.clear()
        taken = list(self.events)
        self.events.clear()
        return taken


@dataclass(slots=True, eq=False)
class Watcher:
    """One listener to the rows of all runs: which ones changed since it last looked."""

    dirty: dict[str, None] = field(default_factory=dict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def mark(self, run_id: str) -> None:
        self.dirty[run_id] = None
        self.wake.set()

    def take(self) -> list[str]:
        self.wake.clear()
        taken = list(self.dirty)
        self.dirty.clear()
        return taken


class Feeds:
    """The listeners of this process."""

    def __init__(self) -> None:
        self._followers: dict[str, set[Follower]] = {}
        self._watchers: set[Watcher] = set()

    def committed(self, changes: Sequence[Change], deleted: Sequence[str]) -> None:
        for change in changes:
            run_id = change.after.id
            for follower in self._followers.get(run_id, ()):
                follower.feed(change.events)
            self.mark(run_id)
        for run_id in deleted:
            for follower in self._followers.get(run_id, ()):
                follower.end()
            self.mark(run_id)

    def mark(self, run_id: str) -> None:
        """The row of a run changed."""
        for watcher in self._watchers:
            watcher.mark(run_id)

    @contextmanager
    def following(self, run_id: str) -> Iterator[Follower]:
        """Listen to one run's log for the length of the block."""
        follower = Follower()
        self._followers.setdefault(run_id, set()).add(follower)
        try:
            yield follower
        finally:
            followers = self._followers[run_id]
            followers.discard(follower)
            if not followers:
                del self._followers[run_id]

    @contextmanager
    def watching(self) -> Iterator[Watcher]:
        """Listen to the rows of all runs for the length of the block."""
        watcher = Watcher()
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)


def closes(event: NewEvent) -> bool:
    """It is the last of its run's log."""
    return event.type in CLOSING and event.seq is None
