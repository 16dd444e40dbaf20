"""Which faults a seed means. Pure: the same seed and pace give the same schedule."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

AGENTS = ("box-a", "box-b")
SERVER = "server"
STORE = "store"
"""The bucket of a site that has one."""
PLACES = (*AGENTS, SERVER)


class Kind(StrEnum):
    """What is done to the system."""

    KILL_SERVER = "kill server"
    KILL_AGENT = "kill agent"
    KILL_AT_END = "kill agent at the end of a run"
    POWER_LOSS = "power loss of a worker"
    KILL_RUN = "kill run process"
    KILL_KEEPER = "kill keeper"
    KILL_ZYGOTE = "kill zygote"
    PAUSE_SERVER = "pause server"
    PAUSE_AGENT = "pause agent"
    CUT = "cut line"
    CORRUPT = "flipped bit"
    STALL = "stall line"
    HALF_OPEN_AGENT = "half open, agent not told"
    HALF_OPEN_SERVER = "half open, server not told"
    SLOW = "slow line"
    LATENCY = "high latency"
    FULL_SERVER = "full disk of the server"
    FULL_AGENT = "full disk of a worker"
    CLOCK = "clock step"
    LOCKED_DATABASE = "locked database"
    KILL_DATABASE = "kill database"
    STOP_AGENT = "stop agent"
    RESTART_SERVER = "planned restart"
    CANCEL = "cancel"
    KILL_STORE = "kill bucket"
    PAUSE_STORE = "pause bucket"


WEIGHTS = {
    Kind.KILL_SERVER: 2,
    Kind.KILL_AGENT: 3,
    Kind.KILL_AT_END: 2,
    Kind.POWER_LOSS: 2,
    Kind.KILL_RUN: 3,
    Kind.KILL_KEEPER: 1,
    Kind.KILL_ZYGOTE: 2,
    Kind.PAUSE_SERVER: 2,
    Kind.PAUSE_AGENT: 2,
    Kind.CUT: 4,
    Kind.CORRUPT: 3,
    Kind.STALL: 2,
    Kind.HALF_OPEN_AGENT: 1,
    Kind.HALF_OPEN_SERVER: 2,
    Kind.SLOW: 2,
    Kind.LATENCY: 2,
    Kind.FULL_SERVER: 2,
    Kind.FULL_AGENT: 2,
    Kind.CLOCK: 3,
    Kind.LOCKED_DATABASE: 2,
    Kind.KILL_DATABASE: 2,
    Kind.STOP_AGENT: 2,
    Kind.RESTART_SERVER: 1,
    Kind.CANCEL: 3,
}
"""How often each is drawn, in relation to the others. Those of a bucket come on top."""

OF_DATABASE = frozenset({Kind.FULL_SERVER, Kind.LOCKED_DATABASE, Kind.KILL_DATABASE})
OF_SERVER = frozenset({Kind.KILL_SERVER, Kind.PAUSE_SERVER, Kind.RESTART_SERVER, *OF_DATABASE})
OF_STORE = frozenset({Kind.KILL_STORE, Kind.PAUSE_STORE})
OF_RUNS = frozenset({Kind.KILL_RUN, Kind.KILL_KEEPER, Kind.CANCEL})
_ANYWHERE = OF_RUNS | {Kind.KILL_ZYGOTE, Kind.CLOCK}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast things go in a schedule."""

    grace_s: float
    """How long runs of an absent worker wait (300 s by default), so that schedules see its end."""
    scale: float
    """Of how long a fault lasts."""
    run_s: tuple[float, float] | None
    """About how long a run takes; None: a few counts up to minutes."""
    tells_half_open: bool
    """The silent end of a half-open line is told at last, instead of having to notice by itself (20 to 30 s)."""


LONG = Pace(grace_s=12.0, scale=1.0, run_s=None, tells_half_open=False)
SHORT = Pace(grace_s=4.0, scale=1 / 3, run_s=(1.0, 3.0), tells_half_open=True)
GAP_S = 2.5
"""Mean time between two faults of a long schedule."""
STORE_GAP_S = 15.0
"""The same of a bucket's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: when it begins, what it hits, and how long it lasts."""

    at_s: float
    kind: Kind
    target: str
    lasts_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Faults by time, and for how long runs are submitted meanwhile."""

    seed: int
    length_s: float
    faults: tuple[Fault, ...]


def long_schedule(seed: int, length_s: float) -> Schedule:
    """One that begins like a shorter one of its seed."""
    return Schedule(seed=seed, length_s=length_s, faults=tuple(_flow(random.Random(seed), length_s)))


def short_schedule(seed: int) -> Schedule:
    """3 to 6 faults in 4 to 8 s."""
    rng = random.Random(seed)
    length_s = rng.uniform(4, 8)
    times = sorted(rng.uniform(0.3, length_s) for _ in range(rng.randint(3, 6)))
    return Schedule(seed=seed, length_s=length_s, faults=tuple(_draw(rng, at_s, SHORT) for at_s in times))


def with_store(plan: Schedule, pace: Pace) -> Schedule:
    """The same with faults of the bucket, one in a short schedule."""
    rng = random.Random(f"store of {plan.seed}")
    times = [rng.uniform(0.3, plan.length_s)]
    while pace is LONG and times[-1] < plan.length_s:
        times.append(times[-1] + rng.expovariate(1 / STORE_GAP_S))
    more = [
        Fault(
            at_s=at_s,
            kind=rng.choice((Kind.KILL_STORE, Kind.PAUSE_STORE)),
            target=STORE,
            lasts_s=rng.uniform(1, 8) * pace.scale,
        )
        for at_s in times
        if at_s < plan.length_s
    ]
    faults = sorted((*plan.faults, *more), key=lambda fault: fault.at_s)
    return replace(plan, faults=tuple(faults))


def _flow(rng: random.Random, length_s: float) -> Iterator[Fault]:
    at_s = 1.0
    while at_s < length_s:
        yield _draw(rng, at_s, LONG)
        at_s += rng.expovariate(1 / GAP_S)


def _draw(rng: random.Random, at_s: float, pace: Pace) -> Fault:
    (kind,) = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
    return Fault(at_s=at_s, kind=kind, target=_target(rng, kind), lasts_s=_lasts(rng, kind, pace))


def _target(rng: random.Random, kind: Kind) -> str:
    if kind in OF_SERVER:
        return SERVER
    return rng.choice(PLACES if kind in _ANYWHERE else AGENTS)


def _lasts(rng: random.Random, kind: Kind, pace: Pace) -> float:
    """Seconds. One absence in six of an agent is longer than the grace, one stall in six than any silence."""
    long = rng.random() < 1 / 6
    match kind:
        case Kind.KILL_AGENT | Kind.STOP_AGENT | Kind.POWER_LOSS | Kind.KILL_AT_END:
            return pace.grace_s + rng.uniform(1, 4) * pace.scale if long else rng.uniform(0, 3) * pace.scale
        case Kind.KILL_SERVER | Kind.RESTART_SERVER:
            return rng.uniform(0, 3) * pace.scale
        case Kind.LOCKED_DATABASE:
            return rng.uniform(1, 6)
        case Kind.STALL:
            return rng.uniform(22, 26) if long and pace is LONG else rng.uniform(1, 8) * pace.scale
        case Kind.SLOW | Kind.LATENCY:
            return rng.uniform(3, 10) * pace.scale
        case Kind.KILL_RUN | Kind.KILL_KEEPER | Kind.KILL_ZYGOTE | Kind.CANCEL | Kind.CUT:
            return 0.0
        case _:
            return rng.uniform(1, 8) * pace.scale
