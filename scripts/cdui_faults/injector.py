"""Plays a schedule: breaks things at their times, and mends them again."""

import heapq
import itertools
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from codefyui_core.errors import CodefyError

from .processes import KEEPER, RUN, ZYGOTE, Process
from .proxy import Line
from .schedule import AGENTS, Fault, Kind
from .site import Site
from .watcher import Asked, Seen, Watcher

STOP_WITHIN_S = 40.0
SLOW_BYTES_S = 20_000.0


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


@dataclass(order=True, slots=True)
class _Step:
    at: float
    number: int
    act: Callable[[], None] = field(compare=False)


class Injector:
    """One thread; ends when the last thing that it broke is mended."""

    def __init__(self, site: Site, watcher: Watcher, faults: Sequence[Fault], seed: int) -> None:
        self.site = site
        self.watcher = watcher
        self.injected: list[Injected] = []
        self.problems: list[str] = []
        self._faults = faults
        self._rng = random.Random(f"victims of {seed}")
        self._steps: list[_Step] = []
        self._numbers = itertools.count()

    def play(self, length_s: float) -> None:
        began = time.monotonic()
        for fault in self._faults:
            self._at(began + fault.at_s, lambda fault=fault: self._inject(fault))  # type: ignore[misc]
        while self._steps or time.monotonic() < began + length_s:
            while self._steps and self._steps[0].at <= time.monotonic():
                heapq.heappop(self._steps).act()
            self._look()
            time.sleep(0.05)

    def _at(self, at: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._steps, _Step(at, next(self._numbers), act))

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self._at(time.monotonic() + seconds, act)

    def _look(self) -> None:
        """A process that ended without being asked is a failure; the schedule goes on with a new one."""
        for name, process in self.site.processes.items():
            if not process.alive and not process.expected:
                self.problems.append(f"{name} ended by itself with status {process.popen.returncode}")
                self.site.start(name)

    # ------------------------------------------------------------ faults

    def _inject(self, fault: Fault) -> None:
        done = Injected(fault=fault, wall_ms=_wall_ms())
        match fault.kind:
            case Kind.KILL_SERVER | Kind.KILL_AGENT:
                there = self._kill(done)
            case Kind.PAUSE_SERVER | Kind.PAUSE_AGENT:
                there = self._pause(done)
            case Kind.STOP_AGENT | Kind.RESTART_SERVER:
                there = self._stop(done)
            case Kind.KILL_RUN | Kind.KILL_KEEPER | Kind.KILL_ZYGOTE:
                there = self._kill_below(done)
            case Kind.CANCEL:
                there = self._cancel(done)
            case _:
                there = self._break_line(done)
        if there:
            self.injected.append(done)

    def _kill(self, done: Injected) -> bool:
        process = self._process(done)
        if not process.up:
            return False
        process.kill()
        self._later(done.fault.lasts_s, lambda: self._start(done))
        return True

    def _pause(self, done: Injected) -> bool:
        process = self._process(done)
        if not process.up:
            return False
        process.pause()

        def wake() -> None:
            process.wake()
            _mended(done)

        self._later(done.fault.lasts_s, wake)
        return True

    def _stop(self, done: Injected) -> bool:
        process = self._process(done)
        if not process.up:
            return False
        if done.fault.kind is Kind.RESTART_SERVER:
            try:
                self.site.post("/api/server/stop", {"runs": "keep"}, 3.0)
            except (CodefyError, OSError):
                return False
        else:
            process.send(signal.SIGTERM)
        process.expected = True
        self._await_end(done, process, time.monotonic() + STOP_WITHIN_S)
        return True

    def _await_end(self, done: Injected, process: Process, deadline: float) -> None:
        if process.alive and time.monotonic() < deadline:
            self._later(0.1, lambda: self._await_end(done, process, deadline))
            return
        if process.alive:
            self.problems.append(f"{done.fault.target} didn't end within {STOP_WITHIN_S:g} s of its stop")
            process.kill()
        elif process.popen.returncode not in {0, -signal.SIGTERM}:
            self.problems.append(f"{done.fault.target} was stopped: status {process.popen.returncode}")
        self._later(done.fault.lasts_s, lambda: self._start(done))

    def _start(self, done: Injected) -> None:
        self.site.start(done.fault.target)
        _mended(done)

    def _kill_below(self, done: Injected) -> bool:
        victim = self._zygote(done) if done.fault.kind is Kind.KILL_ZYGOTE else self._of_run(done)
        if victim is None:
            return False
        with suppress(psutil.Error):
            victim.kill()
            _mended(done)
            return True
        return False

    def _zygote(self, done: Injected) -> psutil.Process | None:
        return next(iter(self._process(done).below(ZYGOTE)), None)

    def _of_run(self, done: Injected) -> psutil.Process | None:
        """A process of a run of that place whose user code executes."""
        executing = {pid: one for one in self.watcher.active(done.fault.target) for pid in self._pid(one)}
        if not executing:
            return None
        pid, one = self._rng.choice(sorted(executing.items(), key=lambda item: item[0]))
        with suppress(psutil.Error):
            process: psutil.Process | None = psutil.Process(pid)
            if process is not None and done.fault.kind is Kind.KILL_KEEPER:
                process = process.parent()
            wanted = KEEPER if done.fault.kind is Kind.KILL_KEEPER else RUN
            if process is not None and process.name() == wanted:
                done.run = one.label
                return process
        return None

    def _pid(self, one: Asked) -> tuple[int, ...]:
        journal = self.watcher.journal(one)
        return () if journal.over else journal.pids[-1:]

    def _cancel(self, done: Injected) -> bool:
        there = [one for one in self.watcher.active(done.fault.target) if one.run_id]
        if not there:
            return False
        one = self._rng.choice(there)
        done.run = one.label
        with suppress(CodefyError, OSError):
            self.site.post(f"/api/runs/{one.run_id}/cancel", timeout_s=3.0)
        _mended(done)
        return True

    def _break_line(self, done: Injected) -> bool:
        def do(act: Callable[[Line], None]) -> None:
            self.site.proxy.do(done.fault.target, act)

        match done.fault.kind:
            case Kind.CUT:
                do(Line.cut)
            case Kind.HALF_OPEN_AGENT:
                do(lambda line: line.half_open(told="server"))
            case Kind.HALF_OPEN_SERVER:
                do(lambda line: line.half_open(told="agent"))
            case Kind.STALL:
                do(lambda line: line.flows.clear())
            case _:
                do(lambda line: setattr(line, "rate", SLOW_BYTES_S))

        def mend() -> None:
            if done.fault.kind is Kind.STALL:
                do(lambda line: line.flows.set())
            if done.fault.kind is Kind.SLOW:
                do(lambda line: setattr(line, "rate", 0.0))
            _mended(done)

        self._later(done.fault.lasts_s, mend)
        return True

    def _process(self, done: Injected) -> Process:
        return self.site.processes[done.fault.target]


def of_server(kind: Kind) -> bool:
    return kind in {Kind.KILL_SERVER, Kind.PAUSE_SERVER, Kind.RESTART_SERVER}


def recovery_s(done: Injected, progress: Mapping[str, Sequence[Seen]]) -> float | None:
    """From the mending until events that were stored after it were seen, of runs of each place that was hit.

    None: there were none.
    """
    if done.mended is None or done.run is not None or done.fault.kind is Kind.KILL_ZYGOTE:
        return None
    places = AGENTS if of_server(done.fault.kind) else (done.fault.target,)
    firsts = [
        next((seen.by for seen in progress[name] if seen.after >= done.mended), None) for name in places
    ]
    return None if None in firsts else max(first - done.mended for first in firsts if first is not None)


def _mended(done: Injected) -> None:
    done.mended = time.monotonic()
    done.mended_wall_ms = _wall_ms()


def _wall_ms() -> int:
    return int(time.time() * 1000)
