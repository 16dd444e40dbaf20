"""What the moves of both sides are made with."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from codefyui_core.runs import machine
from codefyui_core.runs.machine import TRANSITIONS, Effect, Event, Line, State

from .held import Attempts
from .ledger import Ledger
from .rules import NOTHING_OFF, Off, Rule
from .world import World

Label = tuple[object, ...]


class Move(NamedTuple):
    label: Label
    world: World
    fault: bool = False
    """It counts against a budget; nobody may rely on it."""


Moves = Iterator[Move]


Key = tuple[State, Event]

OTHER_LINES: Mapping[Rule, Mapping[Key, Line]] = {
    Rule.ONE_END: {
        (State.LATE, Event.END): Line(State.SETTLED, (Effect.CLOSE, Effect.KEEP_LATE_RESULT)),
    },
    Rule.SLOT_UNTIL_EXITED: {
        (State.ACTIVE, Event.LINK_DOWN): Line(
            State.AWAY_ACTIVE, (Effect.WARN_AWAY, Effect.START_GRACE, Effect.FREE_SLOTS)
        ),
    },
}
"""Rules that are lines of the table: what the lines are without them."""


class Table(dict[Key, Line]):
    """The transitions, and which of them were asked for."""

    used: set[Key]

    def get(self, key: Key, default: Any = None) -> Any:
        self.used.add(key)
        return super().get(key, default)


class Code:
    """The project's decisions of both planes, and the size of the world."""

    def __init__(
        self,
        *,
        off: Off = NOTHING_OFF,
        without: Collection[Key] = (),
        grace_s: float = 300.0,
        events: int = 2,
    ) -> None:
        """``off``: rules that don't hold. ``without``: lines that the table doesn't have."""
        self.off = off
        changed = {key: line for rule in off for key, line in OTHER_LINES.get(rule, {}).items()}
        lines = {**TRANSITIONS, **changed}
        self.table = Table({key: line for key, line in lines.items() if key not in without})
        self.table.used = set()
        self.events = events
        """That a run has to report."""
        self.ledger = Ledger(off, grace_s=grace_s)
        self.attempts = Attempts(off)

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """While this table is the one that the project's code reads."""
        real = machine.TRANSITIONS
        machine.TRANSITIONS = self.table
        try:
            yield
        finally:
            machine.TRANSITIONS = real


def put(items: tuple[Any, ...], index: int, value: object) -> tuple[Any, ...]:
    """The tuple with one item replaced."""
    return (*items[:index], value, *items[index + 1 :])
