"""What there is: compact values that a search can keep hundreds of thousands of.

Left out, as it changes nothing that is checked: time, bytes, windows, storage backends, warnings in the log.
One agent has two connections at most: its own, and one that it left and that the other side still reads.
"""

from enum import StrEnum
from typing import NamedTuple

from codefyui_core.agent.machine import State as AgentState
from codefyui_core.runs.status import StopReason

from .ledger import Stored

# ---------------------------------------------------------------- frames


class Hello(NamedTuple):
    listed: tuple[str, ...]
    """``HelloAttempt`` as it is sent, one a run."""
    word: str = "hello"


class ItemsFrame(NamedTuple):
    run: int
    text: str
    word: str = "items"


class Refuse(NamedTuple):
    run: int
    attempt: int
    retry: bool
    word: str = "refuse"


class Welcome(NamedTuple):
    verdicts: tuple[str, ...]
    word: str = "welcome"


class Assign(NamedTuple):
    run: int
    attempt: int
    lease: str
    word: str = "assign"


class Ack(NamedTuple):
    run: int
    attempt: int
    seq: int
    recorded: str | None
    word: str = "ack"


class Rewind(NamedTuple):
    run: int
    attempt: int
    position: int
    word: str = "rewind"


class Stop(NamedTuple):
    run: int
    attempt: int
    reason: StopReason
    word: str = "stop"


class Bye(NamedTuple):
    reason: str
    word: str = "bye"


class Refused(NamedTuple):
    code: str
    word: str = "refused"


Up = Hello | ItemsFrame | Refuse
Down = Welcome | Assign | Ack | Rewind | Stop | Bye | Refused

# ---------------------------------------------------------------- the line


class Seat(StrEnum):
    """What a connection is to the control plane."""

    NEW = "new"
    """Its hello wasn't read yet."""
    SPEAKS = "speaks"
    SILENCED = "silenced"
    """A newer one speaks."""
    CLOSED = "closed"


class Line(NamedTuple):
    """One connection. Frames that are under way can still be lost, all from one on."""

    up: tuple[Up, ...] = ()
    down: tuple[Down, ...] = ()
    seat: Seat = Seat.NEW
    open: bool = True
    """The agent reads and writes it."""
    welcomed: bool = False
    process: int = 0
    """Of the agent, that made it."""
    credential: int = 0


# ---------------------------------------------------------------- an agent


class Spool(NamedTuple):
    """An attempt's folder on the agent's disk."""

    attempt: int
    lease: str
    items: tuple[bytes | None, ...] = ()
    """Item n at index n - 1; None for a number that this disk never had."""
    synced: int = 0
    outcome: bytes | None = None
    """``outcome.json``."""
    done: bool = False
    """The folder is gone; ``done`` remembers its lease."""


_WITH_PROCESS = frozenset({AgentState.PREPARING.value, AgentState.RUNNING.value})


class Held(NamedTuple):
    """An attempt in the agent's memory: the fields of ``Attempt`` and its machine that matter."""

    attempt: int
    lease: str
    state: str = AgentState.RECEIVED.value
    """Its machine's. A text, as an enum's hash takes time."""
    has_process: bool = False
    ready: bool = False
    acknowledged: bool = False
    stop_reason: StopReason | None = None
    end_seq: int | None = None
    discarded: bool = False
    position: int = 0
    next: int = 1
    late: bool = False
    recovered: bool = False
    welcomed: bool = False

    @property
    def executes(self) -> bool:
        """User code runs."""
        return self.state == AgentState.RUNNING.value

    @property
    def has_processes(self) -> bool:
        return self.has_process and self.state in _WITH_PROCESS


class Agent(NamedTuple):
    """A machine with a folder, and the agent process in it if there is one."""

    held: tuple[Held | None, ...]
    disk: tuple[Spool | None, ...]
    up: bool = True
    over: bool = False
    """It was told that it is revoked, and nobody starts it again."""
    process: int = 0
    """Counts the agent processes: what an incarnation is there for."""
    credential: int = 0
    line: Line | None = None
    old: Line | None = None


# ---------------------------------------------------------------- the control plane


class Plane(NamedTuple):
    """``up``, ``stopping``, ``graces``, ``leases``, ``ghosts``, ``late`` and ``pending`` are memory; the rest is stored."""

    up: bool = True
    stopping: bool = False
    graces: frozenset[int] = frozenset()
    """Runs whose grace is running."""
    leases: frozenset[int] = frozenset()
    """Runs whose lease is still known, not only its hash."""
    ghosts: frozenset[int] = frozenset()
    """Runs that are over and whose processes may still be on their devices."""
    late: frozenset[int] = frozenset()
    """Runs that are over and that the agent knows to be."""
    pending: tuple[str, int, int] | None = None
    """What isn't stored yet though somebody saw its effect; only with a rule switched off."""
    shutdown: str = "running"
    credential: int = 0
    """The one that is good."""
    removed: bool = False
    """The credential is revoked, as the first half of Remove."""
    forgotten: bool = False
    """The second half is done, too."""
    before: int = 0
    """The agent that spoke last: whose machine and home are stored."""


class Run(NamedTuple):
    stored: Stored
    started: bool = False
    """Its user code was started."""
    stop_told: bool = False
    """A user's stop reached its agent before any start."""


class Faults(NamedTuple):
    """How many of each may still happen."""

    cuts: int = 0
    """The agent leaves the line; what it sent may still arrive."""
    silences: int = 0
    """The control plane leaves the line; what it sent may still arrive."""
    crashes: int = 0
    """Of the control plane."""
    kills: int = 0
    """Of an agent."""
    power: int = 0
    """An agent's machine loses what wasn't synced."""
    wipes: int = 0
    """An agent comes back with an empty disk."""
    stops: int = 0
    """By a user."""
    refusals: int = 0
    """Of an assignment, for now or for good."""
    shutdowns: int = 0
    """``cdui stop``."""
    keeps: int = 0
    """``cdui restart``, or ``cdui stop --keep-runs``."""
    removes: int = 0
    rekeys: int = 0
    doubts: int = 0
    """Commits whose outcome is unknown."""


class World(NamedTuple):
    plane: Plane
    runs: tuple[Run, ...]
    agents: tuple[Agent, ...]
    faults: Faults
