"""What links tell runs, and what runs tell workers: the desk between the two."""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.db.database import Database
from codefyui_core.errors import CodefyError
from codefyui_core.plugin.views import RunStatus
from codefyui_core.runs.conclude import Evidence, conclude
from codefyui_core.runs.machine import Effect, Event, State
from codefyui_core.runs.queue import Reason
from codefyui_core.runs.record import RunRecord
from codefyui_core.runs.status import Cause, StopReason
from codefyui_core.runs.steps import Change, Details, apply
from codefyui_core.wire.messages import (
    AckEntry,
    Assign,
    HelloAttempt,
    ItemKind,
    Items,
    Refuse,
    Rewind,
    Stop,
    Verdict,
    WantGrant,
)

from .arrivals import Arrival, Settled, any_proved, in_flight_proved
from .board import Board, Ghost
from .claiming import Claimants, claim_problem
from .decisions import OVER, end_alone, failed, grace_over, link_down
from .desk import Alongside, Claim, T, WorkerDirectory
from .dispatcher import Placed
from .fold import AttemptUnknown, Batch, Fold, lease_fits
from .graces import Graces
from .grants import Grants, revealed
from .places import Places
from .reasons import Reasons
from .receipts import Receipts
from .revoking import rekeying, removal
from .stream import Beside, Gap, artifact_of
from .tasks import Tasks
from .unit import Unit
from .writer import NOT_NOW, Writer

STOP_GRACE_S = 10.0
REFUSALS = 3
"""Of one run, before it has failed."""
HOLD_OFF_S = 10.0
"""After a refusal that may be tried again, for that run on that worker."""
GHOST_S = 15.0
"""How long a discarded attempt's devices are kept free: its agent stops it within 10 s and says nothing."""
_ENDS = frozenset({ItemKind.EXITED, ItemKind.END})


def _gave_back(change: Change) -> bool:
    """Its worker refused the attempt, and the run waits for another one."""
    return change.after.state is State.QUEUED and change.before.state is State.ASSIGNED


class WorkerDesk:
    """Implements ``RunDesk``. Calls for one worker come one by one."""

    def __init__(
        self,
        *,
        db: Database,
        board: Board,
        writer: Writer,
        fold: Fold,
        receipts: Receipts,
        grants: Grants,
        places: Places,
        reasons: Reasons,
        workers: WorkerDirectory,
        tasks: Tasks,
        clock: AttentiveClock,
        log: logging.Logger,
        grace_s: float,
        kick: Callable[[], None],
        stopping: Callable[[], bool],
        resend: Callable[[RunRecord, str], None],
    ) -> None:
        self._db = db
        self._board = board
        self._writer = writer
        self._fold = fold
        self._receipts = receipts
        self._grants = grants
        self._places = places
        self._reasons = reasons
        self._workers = workers
        self._tasks = tasks
        self._clock = clock
        self._log = log
        self._kick = kick
        self._stopping = stopping
        self._resend = resend
        self.graces = Graces(clock, grace_s, self._grace_is_over)
        self._claimants = Claimants(board, workers)
        self._unsent: set[tuple[str, int]] = set()
        """To be sent again once the welcome is out."""
        self._late: dict[str, set[tuple[str, int]]] = {}
        """By place: attempts that are over and that its agent still had at its last hello."""

    # ------------------------------------------------------------ after commits

    def committed(self, changes: Sequence[Change], deleted: Sequence[str]) -> None:
        """Carry out what a transition left for after its commit. Before the board forgets what is over."""
        for change in changes:
            for effect in change.effects:
                self._carry_out(effect, change.after)
            if change.after.state in OVER:
                attempt = change.after.attempt_now
                self._claimants.ended(change.after.id, None if attempt is None else attempt.incarnation)
            if change.after.state is State.SETTLED or _gave_back(change):
                self._settled(change.before)
        for record in filter(None, map(self._board.flights.get, deleted)):
            self._grants.forget((record.id, record.attempt))

    def _carry_out(self, effect: Effect, record: RunRecord) -> None:
        key = (record.id, record.attempt)
        match effect:
            case Effect.START_GRACE:
                self.graces.start(*key)
            case Effect.STOP_GRACE:
                self.graces.stop(*key)
            case Effect.SEND_ASSIGN:
                self._unsent.add(key)
            case Effect.SEND_STOP if record.now.worker_id is not None and record.stop_reason is not None:
                self._send_stop(record, record.stop_reason)

    def _send_stop(self, record: RunRecord, reason: StopReason) -> None:
        link = self._workers.link(record.now.place)
        if link is not None:
            grace = STOP_GRACE_S
            link.send(Stop(run_id=record.id, attempt=record.attempt, reason=reason, grace_s=grace))

    def _settled(self, before: RunRecord) -> None:
        """Nothing more will come from the attempt."""
        if before.attempt_now is None:
            return
        key = (before.id, before.attempt)
        self._grants.forget(key)
        self._unsent.discard(key)
        self._late.get(before.now.place, set()).discard(key)
        if self._board.ghosts.pop(key, None):
            self._kick()

    def send(self, placed: Placed) -> None:
        """The assignment, over the line as it is now. Lost with the line: hello repairs."""
        record = placed.record
        link = self._workers.link(record.now.place)
        if link is None:
            self._tasks.start(
                self.link_down(record.now.place, "it went away while the run was placed"),
                name=f"away {record.id}",
            )
            return
        request = self._board.requests.get(record.id)
        staged = placed.ready.staged
        link.send(
            Assign(
                run_id=record.id,
                attempt=record.attempt,
                lease=placed.lease,
                db_id=self._db.db_id,
                graph=placed.document,
                options={}
                if request is None
                else request.options.model_dump(mode="json", exclude={"target"}),
                devices=record.now.devices,
                name=record.name,
                backend=record.now.backend,
                ticket=record.now.ticket,
                grant=None if staged is None else revealed(staged.grant),
                grant_version=record.now.grant_version,
                stop_grace_s=STOP_GRACE_S,
            )
        )
        if staged is not None:
            self._grants.given(record, staged.grant)

    # ------------------------------------------------------------ hello

    async def hello(
        self, worker_id: str, incarnation: str, attempts: Sequence[HelloAttempt]
    ) -> tuple[Verdict, ...]:
        """T5. ``incarnation`` is judged by admission; what counts here is who shows which lease."""
        arrival = Arrival(
            place=worker_id,
            db_id=self._db.db_id,
            listed=attempts,
            leases=self._board.leases,
            secrets=frozenset(self._board.secrets),
        )
        settled = await self._writer.run(arrival.settle)
        self._board.leases.update(settled.leases)
        self._late[worker_id] = settled.late
        self._haunt(worker_id, settled)
        self._kick()
        return tuple(settled.verdicts)

    def _haunt(self, place: str, settled: Settled) -> None:
        """Devices of attempts that are over stay blocked until their process is gone."""
        ghosts = self._board.ghosts
        for key in [key for key, ghost in ghosts.items() if ghost.place == place]:
            del ghosts[key]
        for key, devices in settled.ghosts.items():
            ghosts[key] = Ghost(place=place, slots=self._places.slots_of(place, devices))
            if key not in settled.late:
                self._clock.timer(GHOST_S, partial(self._lay, key))

    def _lay(self, key: tuple[str, int]) -> None:
        if self._board.ghosts.pop(key, None) is not None:
            self._kick()

    async def welcomed(self, worker_id: str) -> None:
        for record in self._board.in_flight(worker_id):
            key = (record.id, record.attempt)
            if key in self._unsent and record.state is State.ASSIGNED:
                self._unsent.discard(key)
                self._resend(record, self._board.leases.get(key, ""))
            elif self._grants.lacking(record):
                self._grants.renew(record.id, whole=True)
        link = self._workers.link(worker_id)
        if link is not None:
            self._claimants.look(link)
        self._kick()

    # ------------------------------------------------------------ while connected

    async def items(self, worker_id: str, batch: Items) -> AckEntry | Rewind | None:
        taken = Batch(
            run_id=batch.run_id,
            attempt=batch.attempt,
            first=batch.first,
            items=batch.items,
            lease=batch.lease,
        )
        beside = Beside()
        if any(item.kind is ItemKind.TOLD or artifact_of(item) for item in batch.items):
            beside = await self._look(taken)
        try:
            answer = await self._fold.take_in(taken, beside)
        except CodefyError as error:
            if error.code in NOT_NOW:
                return None
            raise
        if isinstance(answer, Gap):
            return Rewind(run_id=batch.run_id, attempt=batch.attempt, position=answer.position)
        if answer.late:
            self._heard_late(worker_id, batch)
        recorded = None if answer.recorded is None else answer.recorded.value
        if any(item.kind in _ENDS for item in batch.items):
            self._kick()
        return AckEntry(run_id=batch.run_id, attempt=batch.attempt, seq=answer.position, recorded=recorded)

    async def _look(self, batch: Batch) -> Beside:
        """What its storage backend says of a batch. A late one isn't shown to it."""
        record = self._board.flights.get(batch.run_id)
        if record is None or record.attempt != batch.attempt or record.state is State.LATE:
            return Beside()
        if not lease_fits(record.now.lease_hash, batch.lease):
            raise AttemptUnknown(f"run {batch.run_id}, attempt {batch.attempt}: another one holds it")
        return await self._receipts.look(record, batch)

    def _heard_late(self, place: str, batch: Items) -> None:
        """Of a run that was ended alone: free its devices when its process is gone, stop it once otherwise."""
        key = (batch.run_id, batch.attempt)
        kinds = {item.kind for item in batch.items}
        if kinds & _ENDS:
            self._lay(key)
        elif key not in self._late.setdefault(place, set()):
            self._late[place].add(key)
            record = self._board.flights.get(batch.run_id)
            if record is not None:
                self._send_stop(record, StopReason.LATE)

    async def refused(self, worker_id: str, refuse: Refuse) -> None:
        async def decide(unit: Unit) -> RunRecord | None:
            record = await unit.load(refuse.run_id)
            held = record is not None and record.attempt == refuse.attempt
            if record is None or not held or record.state is not State.ASSIGNED:
                return None
            if record.now.place != worker_id:
                return None
            return await unit.save(self._refusal(record, refuse, unit.at_ms))

        # Held off before the commit, or the next look at the lines would send it there again at once.
        self._places.held_off.add((worker_id, refuse.run_id))
        after = await self._writer.run(decide)
        if after is not None and after.status is RunStatus.QUEUED:
            self._hold_off(worker_id, refuse)
        else:
            self._places.held_off.discard((worker_id, refuse.run_id))
        self._kick()

    @staticmethod
    def _refusal(record: RunRecord, refuse: Refuse, at_ms: int) -> Change:
        detail = refuse.detail or refuse.code.replace("_", " ")
        text = f"worker {record.worker_name} refused the run: {detail}"
        if record.stop_reason is not None:
            conclusion = conclude(Evidence(stop_reason=record.stop_reason))
            details = Details(conclusion=conclusion)
            return apply(record, Event.REFUSED, at_ms=at_ms, details=details)
        if refuse.retry and record.attempt < REFUSALS:
            return apply(record, Event.REFUSED_FOR_NOW, at_ms=at_ms)
        details = Details(conclusion=failed(text, Cause.REFUSED))
        return apply(record, Event.REFUSED, at_ms=at_ms, details=details)

    def _hold_off(self, place: str, refuse: Refuse) -> None:
        link = self._workers.link(place)
        if link is not None:
            self._places.spent.discard((place, link.incarnation))
        detail = refuse.detail or refuse.code.replace("_", " ")
        self._reasons.notes[refuse.run_id] = Reason(
            text=f"its worker refused it for now: {detail}", code=f"queue.refused_{refuse.code}"
        )

        def over() -> None:
            self._places.held_off.discard((place, refuse.run_id))
            self._reasons.notes.pop(refuse.run_id, None)
            self._kick()

        self._clock.timer(HOLD_OFF_S, over)

    async def want_grant(self, worker_id: str, want: WantGrant) -> None:
        record = self._board.flights.get(want.run_id)
        if record is not None and record.attempt == want.attempt and record.now.place == worker_id:
            self._grants.renew(want.run_id, whole=want.have_version == 0)

    def offers_changed(self, worker_id: str) -> None:
        self._kick()

    # ------------------------------------------------------------ gone

    async def link_down(self, worker_id: str, why: str) -> None:
        """T4. While the server stops, nobody is waited for, unless it leaves runs executing."""
        grace = 0.0 if self._stopping() else self.graces.grace_s

        async def decide(unit: Unit) -> None:
            for record in self._board.in_flight(worker_id):
                current = await unit.load(record.id)
                if current is not None and current.attempt_now is not None and current.now.place == worker_id:
                    change = link_down(current, why, grace, unit.at_ms)
                    if change is not None:
                        await unit.save(change)

        try:
            await self._writer.run(decide)
        except CodefyError as error:
            if error.code not in NOT_NOW:
                raise
            self._log.error("worker %s went away, and that can't be stored: %s", worker_id, error.message)
        self._kick()

    def _grace_is_over(self, run_id: str, attempt: int) -> None:
        self._tasks.start(self._end_grace(run_id, attempt), name=f"grace {run_id}")

    async def _end_grace(self, run_id: str, attempt: int) -> None:
        """The writer serves this or a hello first; after the other one there is nothing left to do."""

        async def decide(unit: Unit) -> RunRecord | None:
            record = await unit.load(run_id)
            if record is None or record.state not in {State.AWAY_ASSIGNED, State.AWAY_ACTIVE}:
                return record
            if record.now.away_why is None or (run_id, attempt) in self.graces:
                return record
            end = end_alone(run_id, Event.GRACE_OVER, attempt, grace_over(self.graces.grace_s))
            return await end(unit)

        try:
            await self._writer.run(decide)
        except CodefyError as error:
            self._log.warning("run %s: its grace is over, but can't be stored: %s", run_id, error.message)
            self.graces.start(run_id, attempt)
        self._kick()

    async def worker_removed(self, worker_id: str, name: str, alongside: Alongside[T]) -> T:
        """T8: in flight interrupted, waiting for it failed; its instances are gone with it."""
        answer = await self._writer.run(removal(self._board, worker_id, name, alongside))
        self._kick()
        return answer

    async def worker_rekeyed(self, worker_id: str, alongside: Alongside[T]) -> T:
        answer = await self._writer.run(rekeying(worker_id, alongside))
        self._kick()
        return answer

    # ------------------------------------------------------------ asked

    def live_attempts(self, worker_id: str) -> Sequence[tuple[str, int]]:
        held = {(record.id, record.attempt) for record in self._board.in_flight(worker_id)}
        return sorted(held | self._late.get(worker_id, set()))

    async def check_leases(self, worker_id: str, incarnation: str, attempts: Sequence[HelloAttempt]) -> bool:
        return in_flight_proved(self._board.in_flight(worker_id), incarnation, attempts)

    def claim_problem(self, claim: Claim) -> str | None:
        return claim_problem(self._board, claim)

    async def awaits(self, worker_id: str, attempts: Sequence[HelloAttempt]) -> bool:
        return any_proved(self._board.of_place(worker_id), attempts)

    async def in_flight(self, worker_id: str) -> int:
        return len(self._board.in_flight(worker_id))
