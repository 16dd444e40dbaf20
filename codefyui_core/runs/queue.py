"""Who of the waiting runs goes next where. Pure: what is free and who fits is handed in.

There is one line for each queue key (``server/cpu``, ``gpu-box/cuda``, ``any/cuda``, ``one-shot/cuda``), first
come, first served. Within a line, runs that need the same things (files, node types) form a group, and only the
first of each group is ever looked at. One that was looked at and found no room waits on a shelf, with all that fit
the same places: a look then costs as much as there are shelves and runs that can be placed, not as much as wait.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from codefyui_core.settings import ControlSettings

from .devices import KINDS, kind_of, matching
from .lines import Candidate, Fitting, Head, Lines, Shelf, Slot, Waiting
from .sharing import Shares

__all__ = [
    "KINDS",
    "Candidate",
    "Capacity",
    "Lines",
    "Look",
    "Reason",
    "Room",
    "Slot",
    "Waiting",
    "kind_of",
    "look",
    "matching",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a run waits, in words and as a code."""

    text: str
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What came of looking at the lines once."""

    placed: tuple[tuple[Waiting, Candidate], ...]
    blocked: Mapping[tuple[str, Hashable], bool]
    """The groups that were looked at in vain; True: they wait for a free slot, False: for a place that fits."""
    more: bool = False
    """There was no time for all: look again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How many runs may be on a device at once."""

    accelerator: int = 1
    cpu: int = 2
    overrides: Mapping[str, int] = field(default_factory=dict)
    """``cuda:0`` (the server's), ``gpu-box/cuda:0`` (a worker's, and its instances')."""

    def of(self, owner: str, device: str) -> int:
        """``owner``: a worker's name, ``<name>.<instance>``, or ``server``."""
        for key in self._keys(owner.lower(), device):
            if key in self.overrides:
                return max(1, self.overrides[key])
        return self.cpu if kind_of(device) == "cpu" else self.accelerator

    @staticmethod
    def _keys(owner: str, device: str) -> Iterator[str]:
        yield f"{owner}/{device}"
        if "." in owner:
            yield f"{owner.partition('.')[0]}/{device}"
        if owner == "server":
            yield device

    @classmethod
    def of_settings(cls, settings: ControlSettings) -> "Capacity":
        """As an installation is set up."""
        return cls.reading(
            accelerator=settings.run_queue_max_concurrent_gpu,
            cpu=settings.run_queue_max_concurrent_cpu,
            overrides=settings.run_queue_max_concurrent,
        )

    @classmethod
    def reading(cls, *, accelerator: int, cpu: int, overrides: Mapping[str, int]) -> "Capacity":
        """From settings; names of workers compare without case."""
        return cls(
            accelerator=accelerator,
            cpu=cpu,
            overrides={key.lower(): count for key, count in overrides.items()},
        )


class Room:
    """What is free on all slots, while runs are given theirs."""

    def __init__(
        self, used: Mapping[Slot, int], capacity: Callable[[Slot], int], shares: Shares | None = None
    ) -> None:
        """``shares``: the slots that admit by memory instead of by number."""
        self._used = Counter(dict(used))
        self._capacity = capacity
        self._shares = shares or Shares()

    def best(self, run: Waiting, candidates: Sequence[Candidate]) -> Candidate | None:
        """The candidate with room on all its devices that goes first by rank, then is used least."""
        return min(
            (one for one in candidates if all(self._fits(run, slot) for slot in one.slots)),
            default=None,
            key=lambda one: (one.rank, sum(self._used[slot] for slot in one.slots), one.devices),
        )

    def worth_a_look(self, candidates: Sequence[Candidate]) -> bool:
        """False: none of these places has room for anybody, and none has anything to hold back."""
        return any(self._is_open(slot) for one in candidates for slot in one.slots)

    def take(self, run: Waiting, candidate: Candidate) -> None:
        self._used.update(candidate.slots)
        for slot in candidate.slots:
            self._shares.take(slot, run.run_id)

    def hold_back(self, candidates: Sequence[Candidate]) -> None:
        """Keep what a run waits for from younger ones: of several devices those that are free already, of a card
        that is shared by memory what is left of it.
        """
        slots = {slot for one in candidates for slot in one.slots}
        several = {slot for one in candidates if len(one.slots) > 1 for slot in one.slots}
        self._used.update(several)
        for slot in slots:
            self._shares.close(slot)

    def shortage(self, run: Waiting, candidates: Sequence[Candidate]) -> Reason | None:
        """What the run lacks on a card that is shared by memory; of several the first."""
        for slot in (slot for one in candidates for slot in one.slots if slot in self._shares):
            lack = self._shares.why_not(slot, run.run_id)
            if lack is not None:
                return Reason(text=lack.text, code=lack.code)
        return None

    def _fits(self, run: Waiting, slot: Slot) -> bool:
        if slot in self._shares:
            return self._shares.why_not(slot, run.run_id) is None
        return self._is_open(slot)

    def _is_open(self, slot: Slot) -> bool:
        if slot in self._shares:
            return self._shares.is_open(slot)
        return self._used[slot] < self._capacity(slot)


def look(
    lines: Lines,
    candidates: Callable[[Waiting], Sequence[Candidate]],
    room: Room,
    *,
    reach: Callable[[Waiting], Iterable[Candidate]] | None = None,
    budget: int | None = None,
) -> Look:
    """Take out of the lines what can be placed, oldest first over all of them.

    A run that fits somewhere but finds no room holds the free slots of its places back from younger ones, so
    that one that needs several devices isn't passed over for ever. One that fits nowhere holds nothing back.

    ``reach``: where runs that ask for the same devices could go at best, until places change; nobody is looked
    at while there is no room. ``budget``: for how many runs ``candidates`` may be asked; the next look goes on behind them.
    """
    return _Looking(lines, candidates, room, reach, budget).all()


class _Looking:
    """One look: the heads of the shelves, merged by age."""

    def __init__(
        self,
        lines: Lines,
        candidates: Callable[[Waiting], Sequence[Candidate]],
        room: Room,
        reach: Callable[[Waiting], Iterable[Candidate]] | None,
        budget: int | None,
    ) -> None:
        self._lines = lines
        self._candidates = candidates
        self._room = room
        self._reach = reach
        self._left = len(lines) if budget is None else budget
        self._heads: list[tuple[int, str, Shelf, Fitting | None]] = []
        self._pushed: set[str] = set()
        self._placed: list[tuple[Waiting, Candidate]] = []
        self._blocked: dict[tuple[str, Hashable], bool] = {}

    def all(self) -> Look:
        for shelf in self._lines.shelves():
            self._push_fresh(shelf)
            for fitting in shelf.known:
                self._push_known(shelf, fitting)
        while self._heads and self._left > 0:
            _, run_id, shelf, known = heapq.heappop(self._heads)
            run = self._lines.get(run_id)
            assert run is not None
            self._place(run, self._ask(run) if known is None else known, shelf)
        return Look(placed=tuple(self._placed), blocked=self._blocked, more=bool(self._heads))

    def _ask(self, run: Waiting) -> Fitting:
        self._left -= 1
        fitting = tuple(self._candidates(run))
        self._lines.file(run, fitting)
        return fitting

    def _place(self, run: Waiting, fitting: Fitting, shelf: Shelf) -> None:
        chosen = self._room.best(run, fitting)
        if chosen is None:  # so are all that fit the same places
            self._blocked[run.line, run.needs] = bool(fitting)
            self._room.hold_back(fitting)
        else:
            self._placed.append((run, chosen))
            self._room.take(run, chosen)
            self._lines.discard(run.run_id)
            self._push_known(shelf, fitting)
        self._push_fresh(shelf)

    def _push_fresh(self, shelf: Shelf) -> None:
        if shelf.fresh and (self._reach is None or self._room.worth_a_look(self._at_best(shelf))):
            self._push(shelf.fresh[0], shelf, None)

    def _at_best(self, shelf: Shelf) -> Fitting:
        if shelf.reach is None:
            run = self._lines.get(shelf.fresh[0][1])
            assert run is not None
            assert self._reach is not None
            self._lines.reaches(run, tuple(self._reach(run)))
        return shelf.reach or ()

    def _push_known(self, shelf: Shelf, fitting: Fitting) -> None:
        heads = shelf.known.get(fitting)
        if heads and self._room.worth_a_look(fitting):
            self._push(heads[0], shelf, fitting)

    def _push(self, head: Head, shelf: Shelf, fitting: Fitting | None) -> None:
        if head[1] not in self._pushed:
            self._pushed.add(head[1])
            heapq.heappush(self._heads, (*head, shelf, fitting))
