"""What the control plane knows of runs right now, in memory: who waits, who holds which device.

Follows the database commit by commit and is made anew from it at each start.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Row

from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import RunFiles
from codefyui_core.runs.machine import State
from codefyui_core.runs.options import AnyTarget, PoolTarget, RunOptions, ServerTarget, Target, WorkerTarget
from codefyui_core.runs.queue import Lines, Slot, Waiting
from codefyui_core.runs.record import RunRecord
from codefyui_core.runs.steps import Change

FILES = TypeAdapter(RunFiles)
TARGET: TypeAdapter[Target] = TypeAdapter(Target)


NO_FILES = RunFiles()


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a place must have for a run. Equal for the variants of a sweep."""

    target: Target
    device: str
    files: RunFiles = NO_FILES
    node_types: frozenset[str] = frozenset()

    @property
    def devices(self) -> str | tuple[str, ...]:
        """The devices of a worker that are named, else what is asked for. With the line and the kind of target
        it says where a run could go at best.
        """
        named = self.target.devices if isinstance(self.target, WorkerTarget) else None
        return named or self.device

    @property
    def kind(self) -> str:
        """server, worker, any or pool."""
        return _KINDS[type(self.target)]


_KINDS: Mapping[type, str] = {
    ServerTarget: "server",
    WorkerTarget: "worker",
    AnyTarget: "any",
    PoolTarget: "pool",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for; never changes."""

    run_id: str
    seq: int
    name: str
    queue_key: str
    needs: Needs
    options: RunOptions
    has_secrets: bool = False
    graph_hash: str | None = None
    """Equal for runs that need as much memory."""

    @property
    def interactive(self) -> bool:
        return self.options.lane == "interactive"

    def waiting(self) -> Waiting:
        return Waiting(
            run_id=self.run_id,
            seq=self.seq,
            line=self.queue_key,
            needs=self.needs,
            ask=(self.needs.kind, self.needs.devices),
        )


@dataclass(slots=True, kw_only=True)
class Ghost:
    """A process of a run that the control plane has ended, which may still be on its devices."""

    place: str
    slots: tuple[Slot, ...]


@dataclass(slots=True)
class Board:
    """All runs that aren't over, as of the last commit."""

    slots_of: Callable[[str, Sequence[str]], tuple[Slot, ...]]
    """Which slots a place's devices are, following cards that two places share."""
    lines: Lines = field(default_factory=Lines)
    requests: dict[str, Request] = field(default_factory=dict)
    flights: dict[str, RunRecord] = field(default_factory=dict)
    """Placed and not settled."""
    holds: dict[str, tuple[Slot, ...]] = field(default_factory=dict)
    """Slots taken while a run's files are prepared and its placing is committed."""
    ghosts: dict[tuple[str, int], Ghost] = field(default_factory=dict)
    secrets: dict[str, JsonObject] = field(default_factory=dict)
    """SECRET values of runs that aren't over. Never written anywhere."""
    leases: dict[tuple[str, int], str] = field(default_factory=dict)

    def committed(self, changes: Sequence[Change], deleted: Sequence[str]) -> None:
        for change in changes:
            self.put(change.after)
        for run_id in deleted:
            self._forget(run_id)

    def put(self, record: RunRecord) -> None:
        """Take over the newest record of a run."""
        state = record.state
        request = self.requests.get(record.id)
        if state is State.QUEUED and request is not None and record.id not in self.holds:
            self.lines.add(request.waiting())
        elif state is not State.QUEUED:
            self.lines.discard(record.id)
        if state in {State.QUEUED, State.SETTLED}:
            self.flights.pop(record.id, None)
        else:
            self.flights[record.id] = record
        if state in {State.LATE, State.SETTLED}:
            self.secrets.pop(record.id, None)
        if state is State.SETTLED:
            self._forget(record.id)

    def _forget(self, run_id: str) -> None:
        self.lines.discard(run_id)
        self.flights.pop(run_id, None)
        self.requests.pop(run_id, None)
        self.secrets.pop(run_id, None)
        self.holds.pop(run_id, None)
        for key in [key for key in self.leases if key[0] == run_id]:
            del self.leases[key]

    def of_place(self, place: str) -> Sequence[RunRecord]:
        """What a worker (or the server: empty) holds, the late ones too."""
        return [record for record in self.flights.values() if record.now.place == place]

    def in_flight(self, place: str) -> Sequence[RunRecord]:
        """Those that aren't over."""
        return [record for record in self.of_place(place) if record.state is not State.LATE]

    def used(self) -> Counter[Slot]:
        """Runs by slot: in flight and not released, held for placing, or still there as ghosts."""
        used: Counter[Slot] = Counter()
        for record in self.flights.values():
            if (
                record.state is not State.LATE
                and not record.now.slots_released
                and not self._interactive(record)
            ):
                used.update(self.slots_of(record.now.place, record.now.devices))
        for slots in self.holds.values():
            used.update(slots)
        for ghost in self.ghosts.values():
            used.update(ghost.slots)
        return used

    def on_slots(self) -> dict[Slot, list[str]]:
        """Runs whose processes take memory there, or will: in the order in which they were placed."""
        found: dict[Slot, list[str]] = {}
        for record in self.flights.values():
            if record.state is not State.LATE and not record.now.slots_released:
                for slot in self.slots_of(record.now.place, record.now.devices):
                    found.setdefault(slot, []).append(record.id)
        for run_id, slots in self.holds.items():
            if run_id not in self.flights:
                for slot in slots:
                    found.setdefault(slot, []).append(run_id)
        return found

    def _interactive(self, record: RunRecord) -> bool:
        request = self.requests.get(record.id)
        return request is not None and request.interactive

    def interactive_count(self) -> int:
        return sum(self._interactive(record) for record in self.flights.values())


def request_of(row: Row[Any]) -> Request:
    """From a row of ``runs``."""
    needs = Needs(
        target=TARGET.validate_python(row.target),
        device=row.device,
        files=NO_FILES if row.files is None else FILES.validate_python(row.files),
        node_types=frozenset(row.node_types or ()),
    )
    return Request(
        run_id=row.id,
        seq=row.queue_seq,
        name=row.name,
        queue_key=row.queue_key,
        needs=needs,
        options=RunOptions.model_validate(row.options),
        has_secrets=row.has_secrets,
        graph_hash=row.graph_hash,
    )
