"""Which faults a seed means. Pure: the same seed and length give the same schedule."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

AGENTS = ("box-a", "box-b")
SERVER = "server"
GRACE_S = 12.0
"""How long runs of an absent worker wait in a schedule (300 by default), so that schedules see its end."""


class Kind(StrEnum):
    """What is done to the system."""

    KILL_SERVER = "kill server"
    KILL_AGENT = "kill agent"
    KILL_RUN = "kill run process"
    KILL_KEEPER = "kill keeper"
    KILL_ZYGOTE = "kill zygote"
    PAUSE_SERVER = "pause server"
    PAUSE_AGENT = "pause agent"
    CUT = "cut line"
    STALL = "stall line"
    HALF_OPEN_AGENT = "half open, agent not told"
    HALF_OPEN_SERVER = "half open, server not told"
    SLOW = "slow line"
    STOP_AGENT = "stop agent"
    RESTART_SERVER = "planned restart"
    CANCEL = "cancel"


WEIGHTS = {
    Kind.KILL_SERVER: 2,
    Kind.KILL_AGENT: 3,
    Kind.KILL_RUN: 3,
    Kind.KILL_KEEPER: 1,
    Kind.KILL_ZYGOTE: 2,
    Kind.PAUSE_SERVER: 2,
    Kind.PAUSE_AGENT: 2,
    Kind.CUT: 4,
    Kind.STALL: 2,
    Kind.HALF_OPEN_AGENT: 1,
    Kind.HALF_OPEN_SERVER: 2,
    Kind.SLOW: 2,
    Kind.STOP_AGENT: 2,
    Kind.RESTART_SERVER: 1,
    Kind.CANCEL: 3,
}
"""How often each is drawn, in relation to the others."""

_OF_SERVER = frozenset({Kind.KILL_SERVER, Kind.PAUSE_SERVER, Kind.RESTART_SERVER})
_OF_RUNS = frozenset({Kind.KILL_RUN, Kind.KILL_KEEPER, Kind.CANCEL})
GAP_S = 2.5
"""Mean time between two faults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: when it begins, what it hits, and how long it lasts."""

    at_s: float
    kind: Kind
    target: str
    lasts_s: float


def schedule(seed: int, length_s: float) -> tuple[Fault, ...]:
    """The faults of a seed, by time. A longer schedule begins like a shorter one."""
    return tuple(_draw(random.Random(seed), length_s))


def _draw(rng: random.Random, length_s: float) -> Iterator[Fault]:
    kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
    at_s = 1.0
    while at_s < length_s:
        (kind,) = rng.choices(kinds, weights)
        yield Fault(at_s=at_s, kind=kind, target=_target(rng, kind), lasts_s=_lasts(rng, kind))
        at_s += rng.expovariate(1 / GAP_S)


def _target(rng: random.Random, kind: Kind) -> str:
    if kind in _OF_SERVER:
        return SERVER
    if kind in _OF_RUNS or kind is Kind.KILL_ZYGOTE:
        return rng.choice((*AGENTS, SERVER))
    return rng.choice(AGENTS)


def _lasts(rng: random.Random, kind: Kind) -> float:
    """Seconds. One absence in six of an agent is longer than the grace, one stall in six than any silence."""
    long = rng.random() < 1 / 6
    match kind:
        case Kind.KILL_AGENT | Kind.STOP_AGENT:
            return GRACE_S + rng.uniform(1, 4) if long else rng.uniform(0, 3)
        case Kind.KILL_SERVER | Kind.RESTART_SERVER:
            return rng.uniform(0, 3)
        case Kind.PAUSE_SERVER | Kind.PAUSE_AGENT:
            return rng.uniform(1, 8)
        case Kind.STALL:
            return rng.uniform(22, 26) if long else rng.uniform(1, 8)
        case Kind.SLOW:
            return rng.uniform(3, 10)
        case _:
            return 0.0
