"""Plays a schedule: breaks things at their times, and mends them again. What each fault does is elsewhere."""

import heapq
import itertools
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .databases import DatabaseKind
from .processes import Process
from .schedule import AGENTS, OF_SERVER, SERVER, STORE, Fault, Kind, Schedule
from .site import Site
from .watcher import Seen, Watcher

TICK_S = 0.02
AGAIN_S = 0.5
"""Between two starts of a process that lacks what it needs."""


@dataclass(slots=True, kw_only=True)
class Injected:
    """A fault that was really put in; one whose target isn't there at its time isn't."""

    fault: Fault
    wall_ms: int
    run: str | None = None
    """The label of the run that was hit."""
    mended: float | None = None
    """When its cause was gone, by the monotonic clock."""
    mended_wall_ms: int | None = None

    def mend(self) -> None:
        self.mended = time.monotonic()
        self.mended_wall_ms = wall_ms()


@dataclass(order=True, slots=True)
class _Step:
    at: float
    number: int
    act: Callable[[], None] = field(compare=False)


class Injector:
    """One thread; ends when the last thing that it broke is mended."""

    def __init__(self, site: Site, watcher: Watcher, plan: Schedule, acts: "Acts") -> None:
        self.site = site
        self.watcher = watcher
        self.injected: list[Injected] = []
        self.problems: list[str] = []
        self.rng = random.Random(f"victims of {plan.seed}")
        self._plan = plan
        self._acts = acts
        self._open = 0
        """Faults that aren't mended yet, however that is found out."""
        self._steps: list[_Step] = []
        self._numbers = itertools.count()

    def play(self) -> None:
        began = time.monotonic()
        for fault in self._plan.faults:
            self._at(began + fault.at_s, lambda fault=fault: self._inject(fault))  # type: ignore[misc]
        while self._steps or self._open or time.monotonic() < began + self._plan.length_s:
            self.tend()
            time.sleep(TICK_S)

    def tend(self) -> None:
        """Do what is due, and see to processes that ended. Also after the schedule, for as long as it is waited."""
        while self._steps and self._steps[0].at <= time.monotonic():
            heapq.heappop(self._steps).act()
        self._look()

    # ------------------------------------------------------------ for faults

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        self._at(time.monotonic() + seconds, act)

    def when(self, met: Callable[[], bool], within_s: float, then: Callable[[bool], None]) -> None:
        """``then`` with True as soon as it is met, with False when the time is over."""
        deadline = time.monotonic() + within_s

        def look() -> None:
            if met():
                then(True)
            elif time.monotonic() >= deadline:
                then(False)
            else:
                self.later(TICK_S, look)

        look()

    def process(self, done: Injected) -> Process:
        return self.site.processes[done.fault.target]

    def start(self, done: Injected) -> None:
        self.site.start(done.fault.target)
        done.mend()

    def say(self, problem: str) -> None:
        self.problems.append(problem)

    def held(self) -> Callable[[], None]:
        """Something is broken until what is answered is called, by any thread."""
        self._open += 1

        def over() -> None:
            self._open -= 1

        return over

    # ------------------------------------------------------------ inside

    def _at(self, at: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._steps, _Step(at, next(self._numbers), act))

    def _look(self) -> None:
        """A process that ended without being asked is a failure, unless it couldn't start on a machine that
        lacked what it needs. The schedule goes on with a new one.
        """
        for name, process in self.site.processes.items():
            process.starved = process.starved or not self.site.usable(name)
            if process.alive or process.expected:
                continue
            if not process.gave_up:
                self.problems.append(f"{name} ended by itself with status {process.popen.returncode}")
            process.expected = True
            self.later(AGAIN_S, lambda name=name: self._again(name))  # type: ignore[misc]

    def _again(self, name: str) -> None:
        if not self.site.processes[name].alive:
            self.site.start(name)

    def _inject(self, fault: Fault) -> None:
        if fault.kind is Kind.KILL_DATABASE and self.site.store.kind is DatabaseKind.SQLITE:
            fault = replace(fault, kind=Kind.LOCKED_DATABASE)
        if fault.kind in self.site.means.missing:
            return
        done = Injected(fault=fault, wall_ms=wall_ms())
        if self._acts[fault.kind](self, done):
            self.injected.append(done)


Act = Callable[[Injector, Injected], bool]
"""Breaks something and sees to its mending; False when there is nothing to break."""
Acts = Mapping[Kind, Act]


def hit_places(fault: Fault) -> tuple[str, ...]:
    """The workers whose runs have to recover."""
    return AGENTS if fault.kind in OF_SERVER or fault.target in {SERVER, STORE} else (fault.target,)


def recovery_s(done: Injected, seen: Mapping[str, Sequence[Seen]]) -> float | None:
    """From the mending until something that came after it was seen of each place that was hit.

    None: it wasn't.
    """
    if done.mended is None or done.run is not None or done.fault.kind is Kind.KILL_ZYGOTE:
        return None
    firsts = [
        next((one.by for one in seen[name] if one.after >= done.mended), None)
        for name in hit_places(done.fault)
    ]
    return None if None in firsts else max(first - done.mended for first in firsts if first is not None)


def wall_ms() -> int:
    return int(time.time() * 1000)
