"""Lines of waiting runs, and who goes next where. Pure: what is free and who fits is handed in.

There is one line for each queue key (``server/cpu``, ``gpu-box/cuda``, ``any/cuda``, ``one-shot/cuda``), first
come, first served. Within a line, runs that need the same things (files, node types) form a group; only the first
of each group is ever looked at, so a look costs as much as there are groups, not runs.
"""

import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Slot = tuple[str, str]
"""The holder of a device (a worker's identity, empty for the server) and the device's name there."""

KINDS = ("cuda", "mps", "cpu")
"""Best first: what ``auto`` takes."""


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
    """The groups that still wait; True: for a free slot, False: for a place that fits."""


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
    def reading(cls, *, accelerator: int, cpu: int, overrides: Mapping[str, int]) -> "Capacity":
        """From settings; names of workers compare without case."""
        return cls(
            accelerator=accelerator,
            cpu=cpu,
            overrides={key.lower(): count for key, count in overrides.items()},
        )


def kind_of(device: str) -> str:
    """``cuda:1`` -> ``cuda``."""
    return device.partition(":")[0]


def matching(asked: str, offered: Sequence[str]) -> tuple[str, ...]:
    """The devices that would do: the one that is named, all of a kind, or for ``auto`` all of the best kind."""
    if asked == "auto":
        kinds = {kind_of(device) for device in offered}
        asked = next((kind for kind in KINDS if kind in kinds), "cpu")
    if asked in offered:
        return (asked,)
    return tuple(device for device in offered if kind_of(device) == asked)


class Lines:
    """All waiting runs. Additions in order of submission cost little; one that comes back finds its old place."""

    def __init__(self) -> None:
        self._runs: dict[str, Waiting] = {}
        self._lines: dict[str, list[tuple[int, str]]] = {}
        self._groups: dict[tuple[str, Hashable], list[tuple[int, str]]] = {}

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
        insort(self._lines.setdefault(run.line, []), (run.seq, run.run_id))
        insort(self._groups.setdefault((run.line, run.needs), []), (run.seq, run.run_id))

    def discard(self, run_id: str) -> None:
        run = self._runs.pop(run_id, None)
        if run is None:
            return
        _remove(self._lines, run.line, (run.seq, run_id))
        _remove(self._groups, (run.line, run.needs), (run.seq, run_id))

    def position(self, run_id: str) -> int | None:
        """1 for the first of its line; None when it doesn't wait."""
        run = self._runs.get(run_id)
        return None if run is None else bisect_left(self._lines[run.line], (run.seq, run_id)) + 1

    def counts(self) -> dict[str, int]:
        """How many wait, by queue key."""
        return {line: len(runs) for line, runs in self._lines.items()}

    def in_order(self, line: str | None = None) -> Sequence[str]:
        """Run ids in order of submission, of one line or of all."""
        if line is not None:
            return [run_id for _, run_id in self._lines.get(line, ())]
        return [run.run_id for run in sorted(self._runs.values(), key=lambda run: run.seq)]

    def groups(self) -> Mapping[tuple[str, Hashable], Sequence[tuple[int, str]]]:
        """Line and needs -> (seq, run id) in order."""
        return self._groups


def _remove(
    lines: "dict[str, list[tuple[int, str]]] | dict[tuple[str, Hashable], list[tuple[int, str]]]",
    key: object,
    entry: tuple[int, str],
) -> None:
    runs = lines[key]  # type: ignore[index]  # one of two kinds of keys, each with its own lines
    del runs[bisect_left(runs, entry)]
    if not runs:
        del lines[key]  # type: ignore[arg-type]  # as above


def choose(
    candidates: Sequence[Candidate], used: Mapping[Slot, int], capacity: Callable[[Slot], int]
) -> Candidate | None:
    """The candidate with room on all its devices that goes first by rank, then is used least."""
    free = [one for one in candidates if all(used.get(slot, 0) < capacity(slot) for slot in one.slots)]
    return min(
        free,
        default=None,
        key=lambda one: (one.rank, sum(used.get(slot, 0) for slot in one.slots), one.devices),
    )


def look(
    lines: Lines,
    candidates: Callable[[Waiting], Sequence[Candidate]],
    used: Mapping[Slot, int],
    capacity: Callable[[Slot], int],
) -> Look:
    """Place what can be placed, oldest first over all lines.

    A run that fits somewhere but finds no room holds the free slots of its places back from younger ones, so
    that one that needs several devices isn't passed over for ever. One that fits nowhere holds nothing back.
    """
    taken = Counter(dict(used))
    placed: list[tuple[Waiting, Candidate]] = []
    blocked: dict[tuple[str, Hashable], bool] = {}
    heads = [(runs[0], group, 0) for group, runs in lines.groups().items()]
    heapq.heapify(heads)
    while heads:
        (_, run_id), group, index = heapq.heappop(heads)
        run = lines.get(run_id)
        assert run is not None
        fitting = candidates(run)
        chosen = choose(fitting, taken, capacity)
        if chosen is None:
            blocked[group] = bool(fitting)
            taken.update({slot for one in fitting if len(one.slots) > 1 for slot in one.slots})
            continue
        placed.append((run, chosen))
        taken.update(chosen.slots)
        rest = lines.groups()[group]
        if index + 1 < len(rest):
            heapq.heappush(heads, (rest[index + 1], group, index + 1))
    return Look(placed=tuple(placed), blocked=blocked)
