"""Cards that are shared by memory: what a run may need, what is left, and whether it fits. Pure.

A card's driver tells how much is free, other people's processes counted. A run that was admitted takes its memory
only by and by, so what it may still take is held for it: until the measurement has fallen by that much, or it is
gone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from .lines import Slot


class Policy(StrEnum):
    """How runs are admitted to a card."""

    COUNT = "count"
    """So many at once."""
    MEMORY = "memory"
    """As many as its free memory takes."""


MARGIN = 1.2
"""Between what tensors took at most and what the process takes from the card: caches, fragments."""
CONTEXT_BYTES = 512 << 20
"""For the process itself: its driver context and libraries' kernels."""
UNKNOWN_SHARE = 0.5
"""Of the card, for a graph that has no finished run to go by."""
LARGEST_SHARE = 0.9
"""Of the card: whoever needs more than that waits for a card that is nearly empty, and not for ever."""


def need_bytes(peak_bytes: int | None, total_bytes: int | None) -> int | None:
    """What a run may take of a card. ``peak_bytes``: what tensors of the newest finished run of its graph took at
    most. None: it can't be told.
    """
    if peak_bytes is not None:
        need = int(peak_bytes * MARGIN) + CONTEXT_BYTES
    elif total_bytes is not None:
        need = int(total_bytes * UNKNOWN_SHARE)
    else:
        return None
    return need if total_bytes is None else min(need, int(total_bytes * LARGEST_SHARE))


@dataclass(slots=True)
class Ledger:
    """What runs on one card were promised and haven't taken yet."""

    growing: dict[str, int] = field(default_factory=dict)
    """Bytes, by run, in the order in which they were admitted."""
    shown: set[str] = field(default_factory=set)
    """Runs whose memory the measurement has in it."""
    base_bytes: int | None = None
    """Free before the growing ones took anything."""

    def follow(self, present: Mapping[str, int], free_bytes: int | None) -> None:
        """Take over who is on the card now, with what each may need, and what was measured last."""
        self.shown &= present.keys()
        self.growing = {run: present[run] for run in self.growing if run in present}
        if not self.growing:
            self.base_bytes = None
        for run, need in present.items():
            if run not in self.growing and run not in self.shown:
                self.growing[run] = need
        if free_bytes is not None and self.growing:
            self._measured(free_bytes)

    def _measured(self, free_bytes: int) -> None:
        """What is gone of the card since the base was taken went to the oldest first."""
        base = free_bytes if self.base_bytes is None else max(self.base_bytes, free_bytes)
        while self.growing:
            run, need = next(iter(self.growing.items()))
            if base - free_bytes < need:
                break
            base -= need
            del self.growing[run]
            self.shown.add(run)
        self.base_bytes = base

    def promised(self, free_bytes: int) -> int:
        """Bytes of the free ones that are held for runs that still grow."""
        if self.base_bytes is None:
            return 0
        left = min(free_bytes, self.base_bytes - sum(self.growing.values()))
        return free_bytes - left


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A shared card at this moment."""

    label: str
    """``gpu-box/cuda:0``."""
    free_bytes: int | None
    """None: not measured lately."""
    promised_bytes: int = 0
    blocked: bool = False
    """The process of a run that is over is still on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Why a run isn't admitted to a card."""

    text: str
    code: str


def shortage(card: Measured, need: int | None, taken_bytes: int = 0) -> Shortage | None:
    """None: it fits. ``taken_bytes``: promised to others since the card was measured."""
    if card.blocked:
        text = f"waits until a run that is over has left {card.label}"
        return Shortage(text=text, code="queue.slot_busy")
    if card.free_bytes is None:
        text = f"waits until the free memory of {card.label} is measured"
        return Shortage(text=text, code="queue.memory_unknown")
    if need is None:
        text = f"waits until it is known how much memory it may need on {card.label}"
        return Shortage(text=text, code="queue.memory_unknown")
    promised = card.promised_bytes + taken_bytes
    if need <= card.free_bytes - promised:
        return None
    text = f"waits for memory on {card.label}: it may need {_size(need)}, {_size(card.free_bytes)} are free"
    if promised > 0:
        text += f", {_size(promised)} of them promised to runs that began there"
    return Shortage(text=text, code="queue.memory")


def _size(count: int) -> str:
    return f"{max(count, 0) / (1 << 30):.1f} GiB"


class Shares:
    """The shared cards during one look at the queue."""

    def __init__(
        self,
        cards: Mapping[Slot, Measured] | None = None,
        need: Callable[[Slot, str], int | None] | None = None,
    ) -> None:
        """``need``: bytes that a run may take of a card; None while it isn't known."""
        self._cards = dict(cards or {})
        self._need = need or _unknown
        self._taken: dict[Slot, int] = {}
        self._closed: set[Slot] = set()

    def __contains__(self, slot: Slot) -> bool:
        return slot in self._cards

    def is_open(self, slot: Slot) -> bool:
        """There may be room for somebody."""
        card = self._cards[slot]
        if slot in self._closed or card.blocked or card.free_bytes is None:
            return False
        return card.free_bytes - card.promised_bytes - self._taken.get(slot, 0) > 0

    def why_not(self, slot: Slot, run_id: str) -> Shortage | None:
        """None: the run fits."""
        card = self._cards[slot]
        if slot in self._closed:
            return Shortage(text=f"waits behind an older run for memory on {card.label}", code="queue.memory")
        return shortage(card, self._need(slot, run_id), self._taken.get(slot, 0))

    def take(self, slot: Slot, run_id: str) -> None:
        if slot in self._cards:
            self._taken[slot] = self._taken.get(slot, 0) + (self._need(slot, run_id) or 0)

    def close(self, slot: Slot) -> None:
        """Nobody younger gets what is left."""
        if slot in self._cards:
            self._closed.add(slot)


def _unknown(_slot: Slot, _run_id: str) -> int | None:
    return None
