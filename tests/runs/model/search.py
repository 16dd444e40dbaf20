"""Every order of all moves, breadth first, so that the first story that breaks a rule is a shortest one."""

import gc
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from codefyui_core.agent.machine import Illegal
from codefyui_core.runs.machine import IllegalTransition

from .agent import agent_moves
from .checks import check, over
from .code import Code, Key, Label, Move
from .faults import fault_moves
from .plane import plane_moves
from .rules import NOTHING_OFF, Off, Violation
from .world import Agent, Faults, Plane, Run, World

NO_FAULTS = Faults()
LIMIT = 3_000_000
"""States, before a search is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A world to begin with."""

    runs: int = 1
    agents: int = 1
    """Machines with the worker's credential."""
    events: int = 2
    grace_s: float = 300.0
    faults: Faults = NO_FAULTS

    def code(self, off: Off = NOTHING_OFF, without: Collection[Key] = ()) -> Code:
        return Code(off=off, without=without, grace_s=self.grace_s, events=self.events)

    def first(self, code: Code) -> World:
        none = (None,) * self.runs
        return World(
            plane=Plane(),
            runs=tuple(Run(code.ledger.queued(n)) for n in range(self.runs)),
            agents=tuple(Agent(held=none, disk=none) for _ in range(self.agents)),
            faults=self.faults,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search found."""

    states: int
    violation: Violation | None = None
    story: tuple[Label, ...] = ()
    """The shortest one that leads to the violation."""

    def __str__(self) -> str:
        if self.violation is None:
            return f"{self.states} states, and all holds in each"
        told = "\n".join(f"  {' '.join(map(str, label))}" for label in self.story)
        return f"{self.violation}, after\n{told}\n({self.states} states)"


def moves(world: World, code: Code) -> Iterator[Move]:
    """Everything that may happen next."""
    return chain(plane_moves(world, code), agent_moves(world, code), fault_moves(world, code))


@dataclass(slots=True)
class Search:
    """One search. ``run`` it once."""

    configuration: Configuration
    off: Off = NOTHING_OFF
    limit: int = LIMIT
    code: Code = field(init=False)
    _parents: dict[World, tuple[World, Label] | None] = field(default_factory=dict)
    _onward: dict[World, list[World]] = field(default_factory=dict)
    """For each state, those that lead to it without a fault."""
    lines: dict[Key, tuple[Label, ...]] = field(default_factory=dict)
    """Lines of the table that were needed, each with a shortest story that comes to it."""

    def __post_init__(self) -> None:
        self.code = self.configuration.code(self.off)

    def run(self) -> Found:
        gc.disable()  # it would look through all states again and again, and none of them is garbage
        try:
            with self.code.in_force():
                return self._run()
        finally:
            gc.enable()

    def _run(self) -> Found:
        first = self.configuration.first(self.code)
        self._parents[first] = None
        waiting = deque([first])
        while waiting:
            world = waiting.popleft()
            try:
                waiting.extend(self._next(world))
            except Violation as violation:
                return self._broken(world, violation)
            if len(self._parents) > self.limit:
                raise AssertionError(f"more than {self.limit} states: no verdict")
        return self._stuck() or Found(states=len(self._parents))

    def _next(self, world: World) -> list[World]:
        """The states that nobody had seen.

        Raises: Violation, with the move that led to it in ``label``.
        """
        new: list[World] = []
        for label, after, fault in _legal(world, self.code):
            if after not in self._parents:
                self._parents[after] = (world, label)
                try:
                    check(after)
                except Violation as violation:
                    violation.world = after
                    raise
                new.append(after)
            if len(self.code.table.used) > len(self.lines):
                story = (*self._story(world), label)
                self.lines.update(dict.fromkeys(self.code.table.used - self.lines.keys(), story))
            if not fault:
                self._onward.setdefault(after, []).append(world)
        return new

    def _broken(self, world: World, violation: Violation) -> Found:
        where = violation.world or world
        return Found(states=len(self._parents), violation=violation, story=self._story(where))

    def _stuck(self) -> Found | None:
        """A state from which no end can be reached without another fault."""
        reached = {world for world in self._parents if over(world)}
        waiting = list(reached)
        while waiting:
            for world in self._onward.get(waiting.pop(), ()):
                if world not in reached:
                    reached.add(world)
                    waiting.append(world)
        for world in self._parents:  # in the order in which they were found: nearest first
            if world not in reached:
                violation = Violation("stuck", f"no settled end can be reached from {world}")
                return Found(states=len(self._parents), violation=violation, story=self._story(world))
        return None

    def _story(self, world: World) -> tuple[Label, ...]:
        story: list[Label] = []
        while (parent := self._parents[world]) is not None:
            world, label = parent
            story.append(label)
        return tuple(reversed(story))


def _legal(world: World, code: Code) -> Iterator[Move]:
    try:
        yield from moves(world, code)
    except (IllegalTransition, Illegal) as error:
        raise Violation("illegal", str(error)) from error


def replay(configuration: Configuration, code: Code, story: Sequence[Label]) -> World:
    """Where a story leads.

    Raises: Violation; LookupError when the story can't go on.
    """
    world = configuration.first(code)
    with code.in_force():
        for wanted in story:
            world = next(after for label, after, _ in _legal(world, code) if label == wanted)
            check(world)
    return world
