"""Several runs on several workers, for random interleavings that are too many to be searched: frames of a
connection may be repeated, reordered and lost one by one, which no socket does, and nothing may come of it.
"""

from dataclasses import dataclass, field

from codefyui_core.agent.machine import Effect as Act
from codefyui_core.agent.machine import State as AgentState
from codefyui_core.control.runs import arrivals, decisions
from codefyui_core.control.runs.fold import AttemptUnknown, Batch, _fold, hash_lease
from codefyui_core.control.runs.stream import Beside, Gap
from codefyui_core.control.runs.worker_desk import WorkerDesk
from codefyui_core.plugin.views import RunStatus
from codefyui_core.runs.machine import Effect, Event, State
from codefyui_core.runs.record import AttemptRecord, RunRecord
from codefyui_core.runs.status import StopReason
from codefyui_core.wire import codec
from codefyui_core.wire.messages import HelloAttempt, Items, Verdict
from codefyui_core.wire.messages import Refuse as RefuseMessage

from .agent import _steps
from .code import Code
from .held import Acted, events_in
from .ledger import AT_MS, DB, DEVICE, Table, finished
from .world import Ack, Assign, Held, ItemsFrame, Refuse, Rewind, Spool, Stop

GRACE_S = 300.0
EVENTS = 2


@dataclass(slots=True)
class Machine:
    """An agent with its disk, and the frames between it and the control plane."""

    name: str
    process: int = 1
    up: bool = True
    session: int = 0
    """Of its newest connection; frames of older ones are dropped unread."""
    online: bool = False
    """It has a connection that was welcomed."""
    held: dict[int, Held] = field(default_factory=dict)
    disk: dict[int, Spool] = field(default_factory=dict)
    up_frames: list[tuple[int, ItemsFrame | Refuse]] = field(default_factory=list)
    down_frames: list[tuple[int, Ack | Assign | Rewind | Stop]] = field(default_factory=list)


class Fleet:
    """Both planes, by name of what happens."""

    def __init__(self, workers: int) -> None:
        self.code = Code(events=EVENTS)
        self.table = Table([])
        self.machines = [Machine(f"w{n}") for n in range(workers)]
        self.speaks: dict[str, tuple[int, int]] = {}
        """Worker -> session and process of its newest connection, as the control plane knows it."""
        self.leases: dict[tuple[str, int], str] = {}
        self.graces: set[str] = set()
        self.ghosts: dict[str, str] = {}
        """Runs that are over and whose process may still be on its worker."""
        self.starts: dict[int, int] = {}
        self.emitted: dict[int, int] = {}
        """Events that each run has reported, on a disk or lost with it."""
        self.unsent: list[str] = []

    # ------------------------------------------------------------ the control plane

    def record(self, run: int) -> RunRecord:
        return self.table.records[f"r{run}"]

    def submit(self, worker: int) -> None:
        run = len(self.table.records)
        name = self.machines[worker].name
        self.table.records[f"r{run}"] = RunRecord(
            id=f"r{run}",
            queue_seq=run,
            name="",
            status=RunStatus.QUEUED,
            queue_key=f"{name}/cuda",
            worker_name=name,
        )

    def in_use(self, worker: str) -> int:
        """Slots of a worker that count as taken."""
        holding = [
            one
            for one in self.table.records.values()
            if one.state in decisions.EXECUTING and one.now.worker_id == worker
        ]
        ghosts = sum(place == worker for place in self.ghosts.values())
        return sum(not one.now.slots_released for one in holding) + ghosts

    def place(self, worker: int) -> bool:
        """The oldest run that waits for the worker, if there is one, and room."""
        name = self.machines[worker].name
        line = [
            one
            for one in self.table.records.values()
            if one.state is State.QUEUED and one.worker_name == name
        ]
        if not line or name not in self.speaks or self.in_use(name):
            return False
        record = min(line, key=lambda one: one.queue_seq)
        number = record.attempt + 1
        lease = self.leases[record.id, number] = f"lease {record.id}.{number}"
        attempt = AttemptRecord(
            number=number, worker_id=name, lease_hash=hash_lease(lease), devices=(DEVICE,)
        )
        self._decide(decisions.place(record.id, attempt, name))
        self._assign(record.id)
        return True

    def stop(self, run: int) -> None:
        self._decide(decisions.stop(f"r{run}", StopReason.USER))

    def grace_over(self, run: int) -> None:
        run_id = f"r{run}"
        if run_id in self.graces:
            self.graces.discard(run_id)
            over = decisions.grace_over(GRACE_S)
            self._decide(decisions.end_alone(run_id, Event.GRACE_OVER, self.record(run).attempt, over))

    def crash(self) -> None:
        """The control plane dies and starts again."""
        self.speaks.clear()
        self.leases.clear()
        self.graces.clear()
        self.ghosts.clear()

        async def take_over(table: Table) -> None:
            for record in tuple(table.records.values()):
                change = decisions.take_over(record, grace_s=GRACE_S, after_stop=False, at_ms=AT_MS)
                if change is not None:
                    await table.save(change)

        self._decide(take_over)

    def link_down(self, worker: int) -> None:
        name = self.machines[worker].name
        if self.speaks.pop(name, None) is None:
            return

        async def decide(table: Table) -> None:
            for record in await table.load_all():
                change = decisions.link_down(record, "cut", GRACE_S, AT_MS)
                if change is not None:
                    await table.save(change)

        self._decide(decide, name)

    def _decide(self, decision: object, worker: str = "") -> object:
        """Commit one decision, then carry out what it leaves."""
        self.table.worker = worker
        self.table.changes.clear()
        answer = finished(decision(self.table))  # type: ignore[operator]  # a decision, or a double of one
        for change in self.table.changes:
            for effect in change.effects:
                self._carry_out(effect, change.after)
            if change.after.state is State.SETTLED:
                self.ghosts.pop(change.after.id, None)
        return answer

    def _carry_out(self, effect: Effect, record: RunRecord) -> None:
        match effect:
            case Effect.START_GRACE:
                self.graces.add(record.id)
            case Effect.STOP_GRACE:
                self.graces.discard(record.id)
            case Effect.SEND_ASSIGN:
                self.unsent.append(record.id)
            case Effect.SEND_STOP:
                reason = record.stop_reason
                assert reason is not None
                self._send(record.now.worker_id, Stop(_number(record.id), record.attempt, reason))

    def _assign(self, run_id: str) -> None:
        record = self.table.records[run_id]
        lease = self.leases[run_id, record.attempt]
        self._send(record.now.worker_id, Assign(_number(run_id), record.attempt, lease))

    def _send(self, worker: str | None, frame: Ack | Assign | Rewind | Stop) -> None:
        if worker in self.speaks:
            machine = next(one for one in self.machines if one.name == worker)
            machine.down_frames.append((self.speaks[worker][0], frame))

    def go_on(self, worker: int, *, refuse: bool | None = None) -> bool:
        """The next ordinary move of a worker, frames in order. False: there is none. ``refuse``: assignments."""
        machine = self.machines[worker]
        connection = (machine.session, machine.process)
        if not machine.up:
            self.start(worker)
        elif not machine.online or self.speaks.get(machine.name) != connection:
            machine.up_frames.clear()
            machine.down_frames.clear()
            self.connect(worker)
        elif machine.down_frames:
            self.agent_reads(worker, 0, refuse=refuse)
        elif machine.up_frames:
            self.server_reads(worker, 0)
        elif not self.send(worker) and not self.step(worker, 0):
            return self.place(worker)
        return True

    # ------------------------------------------------------------ a connection

    def connect(self, worker: int, *, welcome_lost: bool = False) -> None:
        """Dial, hello, welcome: what either side still has of older connections is never read."""
        machine = self.machines[worker]
        if not machine.up:
            return
        self._disconnected(machine)
        if machine.name in self.speaks and self.speaks[machine.name][1] != machine.process:
            self.link_down(worker)  # another process: the older one doesn't answer the probe
        machine.session += 1
        self.speaks[machine.name] = (machine.session, machine.process)
        listed = [
            HelloAttempt.model_validate_json(self.code.attempts.listed(run, held, machine.disk.get(run)))
            for run, held in machine.held.items()
        ]
        settled = self._hello(machine.name, listed)
        if not welcome_lost:
            machine.online = True
            for verdict in settled.verdicts:
                self._judged(machine, verdict)
        for run_id in self.unsent:
            if self.table.records[run_id].state is State.ASSIGNED:
                self._assign(run_id)
        self.unsent.clear()

    def _hello(self, worker: str, listed: list[HelloAttempt]) -> arrivals.Settled:
        arrival = arrivals.Arrival(
            place=worker, db_id=DB, listed=listed, leases=self.leases, secrets=frozenset()
        )
        settled = self._decide(arrival.settle, worker)
        assert isinstance(settled, arrivals.Settled)
        self.leases.update(settled.leases)
        self.ghosts = {run_id: place for run_id, place in self.ghosts.items() if place != worker}
        self.ghosts.update({run_id: worker for run_id, _ in settled.ghosts})
        return settled

    def _judged(self, machine: Machine, verdict: Verdict) -> None:
        run = _number(verdict.run_id)
        held = machine.held[run]
        spool = machine.disk.get(run)
        self._with(machine, run, self.code.attempts.judged(run, held, spool, verdict.kind.value, verdict))

    def leave(self, worker: int) -> None:
        """The agent leaves its line; the control plane doesn't know yet."""
        self._disconnected(self.machines[worker])

    def _disconnected(self, machine: Machine) -> None:
        machine.online = False
        for run, held in machine.held.items():
            machine.held[run] = self.code.attempts.disconnected(run, held, machine.disk.get(run))

    # ------------------------------------------------------------ frames

    def server_reads(self, worker: int, index: int, *, keep: bool = False) -> None:
        """Any frame that is under way, not only the first; ``keep``: it will come once more."""
        machine = self.machines[worker]
        frames = machine.up_frames
        session, frame = frames[index] if keep else frames.pop(index)
        if self.speaks.get(machine.name, (0, 0))[0] != session:
            return
        if isinstance(frame, Refuse):
            self._refused(machine.name, frame)
        else:
            self._items(machine, frame)

    def _refused(self, worker: str, frame: Refuse) -> None:
        refuse = RefuseMessage(run_id=f"r{frame.run}", attempt=frame.attempt, code="busy", retry=frame.retry)

        async def decide(table: Table) -> None:
            record = table.records[refuse.run_id]
            if record.attempt == refuse.attempt and record.state is State.ASSIGNED:
                await table.save(WorkerDesk._refusal(record, refuse, AT_MS))

        self._decide(decide, worker)

    def _items(self, machine: Machine, frame: ItemsFrame) -> None:
        message = codec.decode(frame.text, codec.FROM_AGENT)
        assert isinstance(message, Items)
        batch = Batch(
            run_id=message.run_id,
            attempt=message.attempt,
            first=message.first,
            items=message.items,
            lease=message.lease,
        )

        async def decide(table: Table) -> object:
            return await _fold(table, batch, Beside())  # type: ignore[arg-type]  # a double of Unit

        try:
            answer = self._decide(decide, machine.name)
        except AttemptUnknown:  # bye resync
            self.link_down(self.machines.index(machine))
            return
        record = self.table.records[message.run_id]
        if isinstance(answer, Gap):
            self._send(machine.name, Rewind(frame.run, message.attempt, answer.position))
            return
        if record.now.evidence is not None:
            self.ghosts.pop(record.id, None)
        recorded = record.status.value if record.state is State.SETTLED else None
        self._send(machine.name, Ack(frame.run, message.attempt, record.now.position, recorded))

    def agent_reads(self, worker: int, index: int, *, keep: bool = False, refuse: bool | None = None) -> None:
        """``refuse``: an assignment that is new to it, for now (true) or for good."""
        machine = self.machines[worker]
        frames = machine.down_frames
        session, frame = frames[index] if keep else frames.pop(index)
        if not machine.online or machine.session != session:
            return
        if isinstance(frame, Assign):
            self._assigned(machine, frame, refuse)
            return
        held, spool, attempts = machine.held.get(frame.run), machine.disk.get(frame.run), self.code.attempts
        if held is None or held.attempt != frame.attempt:
            return
        match frame:
            case Ack():
                acted = attempts.acked(frame.run, held, spool, frame.seq, frame.recorded)
            case Rewind():
                acted = attempts.rewound(frame.run, held, spool, frame.position)
            case Stop():
                acted = attempts.stopped(frame.run, held, spool, frame.reason)
        self._with(machine, frame.run, acted)

    def _assigned(self, machine: Machine, frame: Assign, refuse: bool | None) -> None:
        spool = machine.disk.get(frame.run)
        done = spool is not None and spool.done and spool.lease == frame.lease
        if frame.run in machine.held:
            return
        if done or refuse is not None:
            refusal = Refuse(frame.run, frame.attempt, bool(refuse) and not done)
            machine.up_frames.append((machine.session, refusal))
            return
        machine.held[frame.run] = self.code.attempts.assigned(frame.run, frame.attempt, frame.lease)

    # ------------------------------------------------------------ an agent

    def step(self, worker: int, choice: int) -> bool:
        """One step of one attempt. Was there one?"""
        machine = self.machines[worker]
        steps = [(run, step) for run in sorted(machine.held) for step in self._steps(machine, run)]
        if steps:
            run, acted = steps[choice % len(steps)]
            self._with(machine, run, acted)
        return bool(steps)

    def _steps(self, machine: Machine, run: int) -> list[Acted]:
        held = machine.held[run]
        if held.state == AgentState.RECEIVED.value:
            return [self.code.attempts.accept(run, held)]
        return [acted for _, acted in _steps(self.code, run, held, machine.disk[run])]

    def send(self, worker: int) -> bool:
        """The next batch of each attempt. Was there one?"""
        machine, sent = self.machines[worker], False
        for run, held in tuple(machine.held.items()):
            spool = machine.disk.get(run)
            if not machine.online or spool is None:
                continue
            acted = self.code.attempts.sent(run, held, spool)
            if acted is not None:
                self._with(machine, run, acted)
                machine.up_frames.append((machine.session, ItemsFrame(run, acted.answer)))
                sent = True
        return sent

    def kill(self, worker: int, *, keeps: bool) -> None:
        """Its processes end with it; ``keeps``: the disk has everything that was written."""
        machine = self.machines[worker]
        machine.up, machine.online = False, False
        machine.held.clear()
        if not keeps:
            for run, spool in machine.disk.items():
                machine.disk[run] = spool._replace(items=spool.items[: spool.synced])

    def start(self, worker: int) -> None:
        machine = self.machines[worker]
        if machine.up:
            return
        machine.up, machine.process = True, machine.process + 1
        for run, spool in machine.disk.items():
            if not spool.done:
                machine.held[run] = self.code.attempts.found(run, spool)

    def _with(self, machine: Machine, run: int, acted: Acted) -> None:
        if Act.GO in acted.effects:
            self.starts[run] = self.starts.get(run, 0) + 1
        if Act.REMOVE in acted.effects:
            machine.held.pop(run)
            machine.disk[run] = Spool(attempt=acted.held.attempt, lease=acted.held.lease, done=True)
            return
        machine.held[run] = acted.held
        if acted.spool is not None:
            machine.disk[run] = acted.spool
            self.emitted[run] = max(self.emitted.get(run, 0), events_in(acted.spool))


def _number(run_id: str) -> int:
    return int(run_id[1:])
