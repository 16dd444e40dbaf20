"""What a worker says when it connects, against what is stored: a verdict for each attempt that it lists, and
a decision for each that it doesn't (T5). Hello is the only repair.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from codefyui_core.control.db.tables import attempts as attempts_table
from codefyui_core.control.db.tables import runs
from codefyui_core.runs.conclude import Evidence, conclude
from codefyui_core.runs.machine import Event, State
from codefyui_core.runs.record import RunRecord, split_identity
from codefyui_core.runs.status import Cause, Phase
from codefyui_core.runs.steps import Change, Details, Draft, advance
from codefyui_core.wire.messages import HelloAttempt, Verdict, VerdictKind

from .decisions import OVER, interrupted
from .fold import hash_lease, lease_fits
from .unit import Unit

_GONE = frozenset({Phase.PUBLISHING, Phase.ENDED, Phase.LOST})
"""Phases in which no process of the run is left."""
_NOT_BEGUN = frozenset({State.ASSIGNED, State.AWAY_ASSIGNED})
Key = tuple[str, int]


@dataclass(slots=True, kw_only=True)
class Settled:
    """What came of a hello."""

    verdicts: list[Verdict] = field(default_factory=list)
    leases: dict[Key, str] = field(default_factory=dict)
    """New ones, for attempts that are sent again after a restart lost them."""
    ghosts: dict[Key, tuple[str, ...]] = field(default_factory=dict)
    """Devices that a process of an attempt that is over may still hold."""
    late: set[Key] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One hello."""

    place: str
    db_id: str
    listed: Sequence[HelloAttempt]
    leases: Mapping[Key, str]
    """That this process still knows."""
    secrets: frozenset[str]
    """Runs whose SECRET values are still in memory."""

    async def settle(self, unit: Unit) -> Settled:
        """All attempts of the identity in one transaction."""
        found = Settled()
        held = {(record.id, record.attempt): record for record in await self._held(unit)}
        for one in self.listed:
            key = (one.run_id, one.attempt)
            record = held.pop(key, None) if one.db_id == self.db_id else None
            found.verdicts.append(await self._verdict(unit, one, record, found))
        for key, record in held.items():
            change = self._unlisted(record, key, unit.at_ms, found)
            if change is not None:
                await unit.save(change)
        return found

    async def _held(self, unit: Unit) -> Sequence[RunRecord]:
        worker_id, instance = split_identity(self.place)
        records = await unit.load_all(
            attempts_table.c.worker_id == worker_id,
            attempts_table.c.instance == instance,
            runs.c.settled.is_(False),
        )
        return [record for record in records if record.state is not State.QUEUED]

    # ------------------------------------------------------------ listed

    async def _verdict(
        self, unit: Unit, one: HelloAttempt, record: RunRecord | None, found: Settled
    ) -> Verdict:
        key = (one.run_id, one.attempt)
        if one.db_id != self.db_id:
            return _verdict(one, VerdictKind.KEEP)
        record = record or await unit.load(one.run_id)
        if record is None or not _proves(record, one) or record.state is State.SETTLED:
            known = record is not None and _proves(record, one)
            _haunt(found, key, one)
            status = record.status.value if record is not None and known else None
            return _verdict(one, VerdictKind.DISCARD, recorded=status)
        if record.state is State.LATE:
            found.late.add(key)
            if record.now.evidence is None:
                _haunt(found, key, one)
            return _verdict(one, VerdictKind.LATE, position=record.now.position)
        after = await unit.save(_listed(record, one, unit.at_ms))
        return _verdict(one, VerdictKind.RESUME, position=after.now.position, stop=after.stop_reason)

    # ------------------------------------------------------------ not listed

    def _unlisted(self, record: RunRecord, key: Key, at_ms: int, found: Settled) -> Change | None:
        draft = Draft(before=record, at_ms=at_ms)
        match record.state:
            case State.LATE:
                advance(draft, Event.UNLISTED_OVER, Details())
            case State.ACTIVE | State.AWAY_ACTIVE:
                lost = interrupted("its worker came back without the run", Cause.LEASE_LOST)
                advance(draft, Event.UNLISTED_OVER, Details(conclusion=lost))
            case State.ASSIGNED | State.AWAY_ASSIGNED:
                self._not_begun(draft, key, found)
            case _:
                return None
        return draft.done()

    def _not_begun(self, draft: Draft, key: Key, found: Settled) -> None:
        """Nothing ran (R4): send it again, unless it is to stop, or can't be complete any more."""
        record = draft.run
        if record.stop_reason is not None:
            conclusion = conclude(Evidence(stop_reason=record.stop_reason))
            advance(draft, Event.UNLISTED_OVER, Details(conclusion=conclusion))
            return
        if record.has_secrets and record.id not in self.secrets:
            text = "the server restarted before the run began, and its secret values were only in memory"
            advance(
                draft,
                Event.UNLISTED_OVER,
                Details(conclusion=interrupted(f"{text}; submit it again", Cause.SHUTDOWN)),
            )
            return
        advance(draft, Event.UNLISTED, Details())
        if key not in self.leases:
            found.leases[key] = secrets.token_hex(16)
            draft.set_attempt(lease_hash=hash_lease(found.leases[key]))


def _listed(record: RunRecord, one: HelloAttempt, at_ms: int) -> Change:
    draft = Draft(before=record, at_ms=at_ms)
    advance(draft, Event.LISTED_LOST if one.phase is Phase.LOST else Event.LISTED, Details())
    if one.phase is Phase.LOST:
        draft.set_attempt(away_why=None)  # its worker is there: no grace runs
    if one.phase in _GONE and not draft.run.now.slots_released:
        draft.set_attempt(slots_released=True)
    return draft.done()


def _proves(record: RunRecord, one: HelloAttempt) -> bool:
    now = record.attempt_now
    if now is None or now.number != one.attempt or record.state is State.QUEUED:
        return False
    return lease_fits(now.lease_hash, one.lease)


def _haunt(found: Settled, key: Key, one: HelloAttempt) -> None:
    if one.phase not in _GONE:
        found.ghosts[key] = one.devices


def _verdict(
    one: HelloAttempt,
    kind: VerdictKind,
    *,
    position: int = 0,
    stop: object = None,
    recorded: str | None = None,
) -> Verdict:
    return Verdict.model_validate(
        {
            "run_id": one.run_id,
            "attempt": one.attempt,
            "kind": kind,
            "position": position,
            "stop": stop,
            "recorded": recorded,
        }
    )


def in_flight_proved(held: Sequence[RunRecord], incarnation: str, listed: Sequence[HelloAttempt]) -> bool:
    """Does the newcomer show a valid lease for every attempt in flight? The process that an attempt was sent
    to needs none for one that hasn't begun: the assignment may have been lost with the line.
    """
    shown = {(one.run_id, one.attempt): one for one in listed}

    def proved(record: RunRecord) -> bool:
        one = shown.get((record.id, record.attempt))
        if one is not None:
            return _proves(record, one)
        return record.state in _NOT_BEGUN and record.now.incarnation == incarnation

    return all(proved(record) for record in held if record.state not in OVER)


def any_proved(held: Sequence[RunRecord], listed: Sequence[HelloAttempt]) -> bool:
    """Does somebody show a valid lease for any of them, late ones included?"""
    by_key = {(record.id, record.attempt): record for record in held}
    return any(
        (record := by_key.get((one.run_id, one.attempt))) is not None and _proves(record, one)
        for one in listed
    )
