"""The control plane's decisions, run as they are over values instead of a database."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

from codefyui_core.control.runs import arrivals, decisions
from codefyui_core.control.runs.fold import AttemptUnknown, Batch, Folded, _fold, hash_lease
from codefyui_core.control.runs.stream import Beside, Gap
from codefyui_core.control.runs.worker_desk import WorkerDesk
from codefyui_core.plugin.views import RunStatus
from codefyui_core.runs.conclude import Conclusion
from codefyui_core.runs.events import CLOSING
from codefyui_core.runs.machine import Effect, Event, State
from codefyui_core.runs.record import AttemptRecord, RunRecord
from codefyui_core.runs.status import FINAL, Cause, StopReason
from codefyui_core.runs.steps import Change, Details, apply
from codefyui_core.wire import codec
from codefyui_core.wire.messages import HelloAttempt, Items
from codefyui_core.wire.messages import Refuse as RefuseMessage

from .rules import Off, Rule, Violation

WORKER, DB, DEVICE = "w", "db", "cuda:0"
AT_MS = 1
"""Every time is the same: nothing that is checked depends on one."""
UNKNOWN = "unknown attempt"
"""Answer to items of an attempt that isn't theirs."""


Decision = Callable[[Any], Awaitable[Any]]


class Stored:
    """A run as it is stored. Equal records are the same object, so that comparing them costs nothing."""

    __slots__ = ("record", "slot", "state")

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self.state = record.state
        executing = self.state in decisions.EXECUTING
        self.slot = executing and not record.now.slots_released
        """It counts as a run on its device."""

    @property
    def attempt(self) -> int:
        return self.record.attempt

    @property
    def position(self) -> int:
        return self.record.now.position

    def __repr__(self) -> str:
        return f"<{self.state.value}, {self.record.status.value}>"


class Outcome(NamedTuple):
    """What a decision made of the runs."""

    runs: tuple[Stored, ...]
    effects: tuple[tuple[Effect, int], ...]
    settled: tuple[int, ...]
    """Runs that this decision, or an item of it, found or left settled."""
    answer: Any = None


class Welcomed(NamedTuple):
    """What came of a hello, by the runs' numbers."""

    verdicts: tuple[str, ...]
    leases: frozenset[int]
    """Of these the lease is new."""
    late: frozenset[int]
    ghosts: frozenset[int]


class Table:
    """Stands for ``Unit``: reads and saves records, and looks at each change as it is saved."""

    at_ms = AT_MS

    def __init__(self, records: Sequence[RunRecord]) -> None:
        self.records = {record.id: record for record in records}
        self.changes: list[Change] = []
        self.worker = WORKER
        """Whose attempts are asked for."""

    async def load(self, run_id: str) -> RunRecord | None:
        return self.records.get(run_id)

    async def load_all(self, *_conditions: object) -> Sequence[RunRecord]:
        """Those that the worker holds and that aren't settled."""
        placed = [record for record in self.records.values() if record.attempt_now is not None]
        return [one for one in placed if not one.settled and one.now.worker_id == self.worker]

    async def known_artifacts(self, _run_id: str, _ids: object) -> frozenset[str]:
        return frozenset()

    async def save(self, change: Change) -> RunRecord:
        self.records[change.after.id] = told(change)
        self.changes.append(change)
        return self.records[change.after.id]


def told(change: Change) -> RunRecord:
    """The record after a change whose events continue the log as they have to: user events in order and
    once, one closing event, the last. Its cursor counts user events alone, so that logs which differ in
    warnings are one state.

    Raises: Violation.
    """
    before, after = change.before, change.after
    was, now = before.status in FINAL, after.status in FINAL
    if was and (before.status, before.error) != (after.status, after.error):
        raise Violation("one end", f"{before.status} became {after.status}")
    if [event.cursor for event in change.events] != [
        before.last_cursor + n for n in range(1, len(change.events) + 1)
    ]:
        raise Violation("log", "the cursors have a gap")
    closing = [event.type in CLOSING for event in change.events]
    if sum(closing) != (now and not was) or (any(closing) and not closing[-1]) or (was and change.events):
        raise Violation("one end", f"{sum(closing)} closing events from {before.status} to {after.status}")
    counted = before.last_cursor
    for event in change.events:
        if event.type == "log":
            counted += 1
            if event.text != user_event(counted):
                raise Violation("log", f"event {counted} is {event.text}")
    return after if after.last_cursor == counted else replace(after, last_cursor=counted)


def user_event(number: int) -> str:
    """The payload of a run's event, as it is stored."""
    return f'{{"n":{number}}}'


class Ledger:
    """Decisions by name, each remembered for the records that it was made on."""

    def __init__(self, off: Off, *, grace_s: float) -> None:
        self._off = off
        self.grace_s = grace_s
        self._made: dict[object, Outcome] = {}
        self._stored: dict[str, Stored] = {}
        self._proved: dict[object, bool] = {}
        self._leases: dict[str, str] = {}
        """Hash -> lease: what an agent would show."""

    # ------------------------------------------------------------ values

    def store(self, record: RunRecord) -> Stored:
        key = repr(record)
        found = self._stored.get(key)
        if found is None:
            found = self._stored[key] = Stored(record)
        return found

    def lease(self, stored: Stored) -> str:
        return self._leases[stored.record.now.lease_hash or ""]

    def _hashed(self, lease: str) -> str:
        hashed = hash_lease(lease)
        self._leases[hashed] = lease
        return hashed

    def queued(self, index: int) -> Stored:
        return self.store(
            RunRecord(
                id=f"r{index}",
                queue_seq=index,
                name="",
                status=RunStatus.QUEUED,
                queue_key="w/cuda",
                worker_name="w",
            )
        )

    def _decide(self, key: object, runs: tuple[Stored, ...], decision: Decision) -> Outcome:
        made = self._made.get((key, runs))
        if made is None:
            made = self._made[key, runs] = self._run(runs, decision)
        return made

    def _run(self, runs: tuple[Stored, ...], decision: Decision) -> Outcome:
        table = Table([stored.record for stored in runs])
        answer = finished(decision(table))
        index = {stored.record.id: n for n, stored in enumerate(runs)}
        effects = [(effect, index[one.after.id]) for one in table.changes for effect in one.effects]
        after = tuple(self.store(record) for record in table.records.values())
        settled = tuple(index[one.after.id] for one in table.changes if one.after.state is State.SETTLED)
        return Outcome(after, tuple(effects), settled, answer)

    # ------------------------------------------------------------ decisions

    def place(self, runs: tuple[Stored, ...], index: int, incarnation: str) -> Outcome:
        number = runs[index].attempt + 1
        attempt = AttemptRecord(
            number=number,
            worker_id=WORKER,
            lease_hash=self._hashed(f"lease {index}.{number}"),
            devices=(DEVICE,),
            incarnation=incarnation,
        )
        return self._decide(("place", index, incarnation), runs, decisions.place(f"r{index}", attempt, "w"))

    def stop(self, runs: tuple[Stored, ...], index: int, reason: StopReason) -> Outcome:
        return self._decide(("stop", index, reason), runs, decisions.stop(f"r{index}", reason))

    def grace_over(self, runs: tuple[Stored, ...], index: int) -> Outcome:
        end = decisions.end_alone(
            f"r{index}", Event.GRACE_OVER, runs[index].attempt, decisions.grace_over(self.grace_s)
        )
        return self._decide(("grace", index), runs, end)

    def link_down(self, runs: tuple[Stored, ...], *, stopping: bool) -> Outcome:
        grace_s = 0.0 if stopping else self.grace_s

        async def decide(table: Table) -> None:
            for record in await table.load_all():
                change = decisions.link_down(record, "cut", grace_s, AT_MS)
                if change is not None:
                    await table.save(change)

        return self._decide(("down", stopping), runs, decide)

    def take_over(self, runs: tuple[Stored, ...], *, after_stop: bool) -> Outcome:
        async def decide(table: Table) -> None:
            for record in tuple(table.records.values()):
                change = decisions.take_over(record, grace_s=self.grace_s, after_stop=after_stop, at_ms=AT_MS)
                if change is not None:
                    await table.save(change)

        return self._decide(("take over", after_stop), runs, decide)

    def shutdown_over(self, runs: tuple[Stored, ...], *, away_only: bool) -> Outcome:
        states = decisions.AWAY if away_only else decisions.EXECUTING
        conclusion = decisions.interrupted("the server was stopped", Cause.SHUTDOWN)

        async def decide(table: Table) -> None:
            for record in tuple(table.records.values()):
                if record.state in states:
                    end = decisions.end_alone(
                        record.id, Event.SHUTDOWN_OVER, record.attempt, lambda _record: conclusion
                    )
                    await end(table)  # type: ignore[arg-type]  # a double of Unit

        return self._decide(("shutdown over", away_only), runs, decide)

    def end_worker(self, runs: tuple[Stored, ...], event: Event) -> Outcome:
        """Remove or re-key, as ``WorkerDesk`` carries them out."""
        details = Details(conclusion=decisions.interrupted("its worker is gone", Cause.REFUSED))
        waiting = Conclusion(status=RunStatus.FAILED, error="removed", cause=Cause.REFUSED)

        async def decide(table: Table) -> None:
            for record in await table.load_all():
                late = record.state is State.LATE and event is Event.REMOVED
                if record.state in decisions.EXECUTING or late:
                    await table.save(apply(record, event, at_ms=AT_MS, details=details))
            if event is Event.REMOVED:
                for run_id in tuple(table.records):
                    await decisions.drop(run_id, waiting)(table)  # type: ignore[arg-type]

        return self._decide(event, runs, decide)

    def refused(self, runs: tuple[Stored, ...], index: int, attempt: int, *, retry: bool) -> Outcome:
        refuse = RefuseMessage(run_id=f"r{index}", attempt=attempt, code="busy", retry=retry)

        async def decide(table: Table) -> None:
            record = table.records[refuse.run_id]
            if record.attempt == attempt and record.state is State.ASSIGNED:
                await table.save(WorkerDesk._refusal(record, refuse, AT_MS))

        return self._decide(("refused", index, attempt, retry), runs, decide)

    def hello(self, runs: tuple[Stored, ...], listed: tuple[str, ...], leases: frozenset[int]) -> Outcome:
        """The answer: ``Welcomed``."""
        known = {(f"r{n}", runs[n].attempt): self.lease(runs[n]) for n in leases}

        async def decide(table: Table) -> Welcomed:
            arrival = arrivals.Arrival(
                place=WORKER,
                db_id=DB,
                listed=[HelloAttempt.model_validate_json(one) for one in listed],
                leases=known,
                secrets=frozenset(),
            )
            with_lease = [one.now.lease_hash for one in table.records.values() if one.attempt_now]
            fresh = "+".join(self._leases[hashed] for hashed in with_lease if hashed) + "'"
            with patch.object(arrivals, "secrets", SimpleNamespace(token_hex=lambda _bytes: fresh)):
                settled = await arrival.settle(table)  # type: ignore[arg-type]  # a double of Unit
            for lease in settled.leases.values():
                self._hashed(lease)
            return Welcomed(
                verdicts=tuple(verdict.model_dump_json() for verdict in settled.verdicts),
                leases=_numbers(settled.leases),
                late=_numbers(settled.late),
                ghosts=_numbers(settled.ghosts),
            )

        return self._decide(("hello", listed, leases), runs, decide)

    def take_in(self, runs: tuple[Stored, ...], text: str, *, doubt: bool = False) -> Outcome:
        """A batch. The answer: ``Folded``, ``Gap`` or ``UNKNOWN``. ``doubt``: nobody knows whether the commit
        was made, so the decision is run again.
        """
        message = codec.decode(text, codec.FROM_AGENT)
        assert isinstance(message, Items)
        batch = Batch(
            run_id=message.run_id,
            attempt=message.attempt,
            first=message.first,
            items=message.items,
            lease=message.lease,
        )

        async def decide(table: Table) -> Folded | Gap | str:
            try:
                answer = await _fold(table, batch, Beside())  # type: ignore[arg-type]  # a double of Unit
                if doubt and Rule.READS_AGAIN in self._off:
                    for change in tuple(table.changes):
                        told(replace(change, before=table.records[change.after.id]))
                elif doubt:
                    answer = await _fold(table, batch, Beside())  # type: ignore[arg-type]  # as above
            except AttemptUnknown:
                return UNKNOWN
            return answer

        return self._decide(("items", text, doubt), runs, decide)

    def with_position(self, runs: tuple[Stored, ...], index: int, position: int) -> tuple[Stored, ...]:
        """Position alone: what a second transaction would store."""
        record = runs[index].record
        moved = replace(record, attempt_now=replace(record.now, position=position))
        return (*runs[:index], self.store(moved), *runs[index + 1 :])

    def shows_leases(self, runs: tuple[Stored, ...], incarnation: str, listed: tuple[str, ...]) -> bool:
        key = (runs, incarnation, listed)
        if key not in self._proved:
            held = [one.record for one in runs if one.state in decisions.EXECUTING]
            shown = [HelloAttempt.model_validate_json(one) for one in listed]
            self._proved[key] = arrivals.in_flight_proved(held, incarnation, shown)
        return self._proved[key]


def _numbers(keys: Iterable[tuple[str, int]]) -> frozenset[int]:
    return frozenset(int(run_id[1:]) for run_id, _ in keys)


def finished(work: Awaitable[Any]) -> Any:
    """What is returned by something that waits for nothing."""
    try:
        next(work.__await__())
    except StopIteration as end:
        return end.value
    raise AssertionError("a decision waits for something")
