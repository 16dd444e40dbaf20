"""Where runs and links meet at the control plane: what each may ask of the other."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import WorkerView
from codefyui_core.runs.sharing import Policy
from codefyui_core.wire.messages import (
    AckEntry,
    Assign,
    DeviceInfo,
    GrantMessage,
    HelloAttempt,
    Items,
    Refuse,
    Rewind,
    Stop,
    Verdict,
    WantGrant,
)

T = TypeVar("T")
Alongside = Callable[[AsyncConnection], Awaitable[T]]
"""Statements of links' own for a transaction that ends runs. What they raise undoes all of it. They are carried out
again after an outage, and when the first commit had come through unheard.
"""


class WorkerLink(Protocol):
    """A connected worker, as runs see it. Gone from the directory the moment its line is down."""

    @property
    def view(self) -> WorkerView: ...
    @property
    def incarnation(self) -> str: ...
    @property
    def devices(self) -> Sequence[DeviceInfo]: ...
    @property
    def accepting(self) -> bool: ...
    @property
    def ready(self) -> bool:
        """Its first ``report`` came: runs may be assigned."""
        ...

    @property
    def claimed_run(self) -> str | None:
        """The run that its agent was started for (``--run-id``); it takes no other."""
        ...

    @property
    def node_types(self) -> frozenset[str] | None:
        """None: it reported no catalog, and isn't checked."""
        ...

    @property
    def lacks_types(self) -> bool:
        """Degraded by lacking a type that the control plane has: ``any`` skips it."""
        ...

    @property
    def facts(self) -> Mapping[str, JsonObject | None]: ...
    @property
    def fingerprint(self) -> str | None: ...
    @property
    def free_memory(self) -> Mapping[str, int]:
        """Bytes by device, as its agent measured last; other people's processes are counted."""
        ...

    @property
    def measured_at(self) -> float | None:
        """When that came, by the attentive clock; None: it hasn't yet."""
        ...

    def send(self, message: Assign | Stop | GrantMessage) -> None:
        """Queue a frame on its line; lost when the line is down (hello repairs)."""
        ...

    def run_gone(self) -> None:
        """Let the agent go: the run that it was started for can't be had any more."""
        ...


class WorkerDirectory(Protocol):
    """All workers, as runs see them."""

    def live(self) -> Sequence[WorkerLink]:
        """The connected ones."""
        ...

    def link(self, worker_id: str) -> WorkerLink | None: ...
    async def by_name(self, name: str) -> "KnownWorker | None":
        """An enrolled worker, connected or not."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownWorker:
    """What is stored of a worker, for decisions about runs that name it."""

    view: WorkerView
    devices: Sequence[DeviceInfo]
    facts: Mapping[str, JsonObject | None]
    node_types: frozenset[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """An agent on its way in that was started for one run (``--run-id``)."""

    run_id: str
    place: str
    """Its identity."""
    name: str
    """The worker's, with ``.<instance>`` for one."""
    devices: tuple[str, ...]


class RunDesk(Protocol):
    """What links tell runs. Each call is one transaction or none; calls for one worker come one by one."""

    async def hello(
        self, worker_id: str, incarnation: str, attempts: Sequence[HelloAttempt]
    ) -> tuple[Verdict, ...]:
        """T5: settle what the agent lists and what it doesn't. Called before the welcome is sent."""
        ...

    async def welcomed(self, worker_id: str) -> None:
        """The welcome is sent and the link is in the directory: send again what was assigned and not
        listed, look at the queue.
        """
        ...

    async def link_down(self, worker_id: str, why: str) -> None:
        """T4: its attempts go away, or end when the grace is 0."""
        ...

    async def items(self, worker_id: str, batch: Items) -> AckEntry | Rewind | None:
        """T3. None: the database can't take it now; the batch is dropped unacknowledged and a rewind will
        follow. Raises CodefyError ``run.attempt_unknown`` for a lease that doesn't fit.
        """
        ...

    async def refused(self, worker_id: str, refuse: Refuse) -> None: ...
    async def want_grant(self, worker_id: str, want: WantGrant) -> None: ...
    def policy_of(self, worker_id: str, device: str) -> str:
        """How runs are admitted to a device: count or memory."""
        ...

    async def set_policy(self, worker_id: str, device: str, policy: Policy) -> None:
        """Store that, from now on."""
        ...

    def offers_changed(self, worker_id: str) -> None:
        """A report, a drain, a device or a catalog changed what it may get."""
        ...

    async def worker_removed(self, worker_id: str, name: str, alongside: Alongside[T]) -> T:
        """T8: end what it holds, fail what waits for it, and in the same transaction what removes it."""
        ...

    async def worker_rekeyed(self, worker_id: str, alongside: Alongside[T]) -> T:
        """T8: end what it executes, and in the same transaction what gives it another credential."""
        ...

    def live_attempts(self, worker_id: str) -> Sequence[tuple[str, int]]:
        """What the control plane believes the worker executes, for the beat's check."""
        ...

    async def check_leases(self, worker_id: str, incarnation: str, attempts: Sequence[HelloAttempt]) -> bool:
        """Admission row 4: does the newcomer show a valid lease for each attempt in flight?"""
        ...

    def claim_problem(self, claim: "Claim") -> str | None:
        """Admission row 9: why the agent can't have the run that it was started for. None: the run waits for
        it, or is its own already.
        """
        ...

    async def awaits(self, worker_id: str, attempts: Sequence[HelloAttempt]) -> bool:
        """Does the newcomer list an attempt, with its lease, whose end isn't recorded yet?"""
        ...

    async def in_flight(self, worker_id: str) -> int:
        """Attempts of this worker that are neither final nor void."""
        ...
