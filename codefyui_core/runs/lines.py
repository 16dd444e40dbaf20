"""All waiting runs: their lines, their groups, and where the oldest of each group was found to fit. Pure.

Every step costs O(log n) of the runs that wait, also where each run needs something else: the positions of a line
and the heads of its groups are kept in sorted lists that answer by rank.
"""

from collections.abc import Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TypeVar

from sortedcontainers import SortedList

Key = TypeVar("Key", bound=Hashable)
Slot = tuple[str, str]
"""The holder of a device (a worker's identity, empty for the server) and the device's name there."""
Head = tuple[int, str]
"""Order of submission and id of a run; sorts oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A place that would do for a run."""

    place: str
    """Identity of the worker; empty for the server."""
    devices: tuple[str, ...]
    slots: tuple[Slot, ...]
    """What is counted; differs from place and devices where two places share a card."""
    rank: int = 0
    """Lower goes first, before anything else is compared."""


Fitting = tuple[Candidate, ...]
"""Where a run could go, free or not; equal for runs that can go to the same places. Empty: nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A run in a line."""

    run_id: str
    seq: int
    """Order of submission."""
    line: str
    """Its queue key."""
    needs: Hashable = None
    """Equal for runs that fit exactly the same places."""
    ask: Hashable = None
    """What of its needs names devices, whatever else they hold; equal for runs with equal needs."""

    @property
    def head(self) -> Head:
        return (self.seq, self.run_id)


@dataclass(slots=True)
class Shelf:
    """The groups of a line that ask for the same devices, by the oldest run of each."""

    fresh: "SortedList[Head]" = field(default_factory=SortedList)
    """Nobody has looked yet where these fit."""
    known: "dict[Fitting, SortedList[Head]]" = field(default_factory=dict)
    """Looked at and not placed, by the places where they fit."""
    reach: Fitting | None = None
    """Where they could go at best; None: nobody has asked since places changed."""


class Lines:
    """All waiting runs; one that comes back finds its old place."""

    def __init__(self) -> None:
        self._runs: dict[str, Waiting] = {}
        self._lines: dict[str, SortedList[Head]] = {}
        self._groups: dict[tuple[str, Hashable], SortedList[Head]] = {}
        self._shelves: dict[tuple[str, Hashable], Shelf] = {}
        self._awake: dict[tuple[str, Hashable], Shelf] = {}
        """Shelves whose runs could go anywhere at all."""
        self._filed: dict[str, Fitting] = {}
        """Heads that are known on their shelf."""
        self._apart: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self._runs)

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._runs

    def get(self, run_id: str) -> Waiting | None:
        return self._runs.get(run_id)

    def add(self, run: Waiting) -> None:
        if run.run_id in self._runs:
            return
        self._runs[run.run_id] = run
        self._lines.setdefault(run.line, SortedList()).add(run.head)
        if run.run_id not in self._apart:
            self._join(run)

    def discard(self, run_id: str) -> None:
        run = self._runs.get(run_id)
        if run is None:
            return
        if run_id not in self._apart:
            self._leave(run)
        del self._runs[run_id]
        _remove(self._lines, run.line, run.head)

    def keep_apart(self, run_ids: AbstractSet[str]) -> None:
        """These have a place in their line, and no look places them or waits behind them: somebody was started for
        each of them. Replaces those that were kept apart before.
        """
        before, self._apart = self._apart, frozenset(run_ids)
        for run_id in before - self._apart:
            if run_id in self._runs:
                self._join(self._runs[run_id])
        for run_id in self._apart - before:
            if run_id in self._runs:
                self._leave(self._runs[run_id])

    def _join(self, run: Waiting) -> None:
        group = self._groups.setdefault((run.line, run.needs), SortedList())
        if not group or run.head < group[0]:
            self._shelve(run)
            if group:
                self._unshelve(self._runs[group[0][1]])
        group.add(run.head)

    def _leave(self, run: Waiting) -> None:
        group = self._groups[run.line, run.needs]
        if group[0] == run.head:
            if len(group) > 1:
                self._shelve(self._runs[group[1][1]])
            self._unshelve(run)
        _remove(self._groups, (run.line, run.needs), run.head)

    def position(self, run_id: str) -> int | None:
        """1 for the first of its line; None when it doesn't wait."""
        run = self._runs.get(run_id)
        return None if run is None else self._lines[run.line].index(run.head) + 1

    def counts(self) -> dict[str, int]:
        """How many wait, by queue key."""
        return {line: len(runs) for line, runs in self._lines.items()}

    def in_order(self, line: str | None = None) -> Sequence[str]:
        """Run ids in order of submission, of one line or of all. All of them: it takes as long as there are runs."""
        if line is not None:
            return [run_id for _, run_id in self._lines.get(line, ())]
        return [run.run_id for run in sorted(self._runs.values(), key=lambda run: run.seq)]

    def groups(self) -> Mapping[tuple[str, Hashable], Sequence[Head]]:
        """Line and needs -> runs in order, without those that are kept apart."""
        return self._groups

    # ------------------------------------------------------------ where they fit

    def shelves(self) -> Sequence[Shelf]:
        """One for each line and ask in which somebody waits, without those that can go nowhere at best."""
        return tuple(self._awake.values())

    def reaches(self, run: Waiting, places: Fitting) -> None:
        """Where the runs on this one's shelf could go at best, until places change."""
        key = (run.line, run.ask)
        self._shelves[key].reach = places
        if not places:
            self._awake.pop(key, None)

    def file(self, run: Waiting, fitting: Fitting) -> None:
        """The oldest of its group was looked at, and can't be placed now."""
        shelf = self._unshelve(run)
        self._filed[run.run_id] = fitting
        shelf.known.setdefault(fitting, SortedList()).add(run.head)
        self._put(run, shelf)

    def refresh(self, run_id: str) -> None:
        """Where this run fits has changed: look again."""
        if run_id in self._filed:
            run = self._runs[run_id]
            self._unshelve(run)
            self._shelve(run)

    def forget_places(self) -> None:
        """Where anything fits may have changed: look again at what was looked at."""
        for shelf in self._shelves.values():
            for heads in shelf.known.values():
                shelf.fresh.update(heads)
            shelf.known.clear()
            shelf.reach = None
        self._filed.clear()
        self._awake = dict(self._shelves)

    def _shelve(self, run: Waiting) -> None:
        shelf = self._shelves.get((run.line, run.ask))
        if shelf is None:
            shelf = Shelf()
            self._put(run, shelf)
        shelf.fresh.add(run.head)

    def _put(self, run: Waiting, shelf: Shelf) -> None:
        self._shelves[run.line, run.ask] = self._awake[run.line, run.ask] = shelf

    def _unshelve(self, run: Waiting) -> Shelf:
        """The shelf stays while there is something on it."""
        key = (run.line, run.ask)
        shelf = self._shelves[key]
        fitting = self._filed.pop(run.run_id, None)
        if fitting is None:
            shelf.fresh.remove(run.head)
        else:
            _remove(shelf.known, fitting, run.head)
        if not shelf.fresh and not shelf.known:
            del self._shelves[key]
            self._awake.pop(key, None)
        return shelf


def _remove(lists: "dict[Key, SortedList[Head]]", key: Key, head: Head) -> None:
    """Nothing is kept of an empty list."""
    heads = lists[key]
    heads.remove(head)
    if not heads:
        del lists[key]
