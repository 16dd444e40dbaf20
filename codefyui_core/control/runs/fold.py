"""Taking batches of items into the log of their run: once each, in order, or not at all (T3)."""

import hashlib
import hmac
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy.exc import DBAPIError

from codefyui_core.control.db.outages import is_outage
from codefyui_core.errors import CodefyError
from codefyui_core.plugin.views import RunStatus
from codefyui_core.runs.machine import State
from codefyui_core.runs.record import RunRecord
from codefyui_core.runs.status import AttemptState
from codefyui_core.wire.messages import Item

from .stream import Beside, Gap, artifact_of, number, take
from .unit import Unit
from .writer import Writer


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Consecutive items of one attempt."""

    run_id: str
    attempt: int
    first: int
    items: Sequence[Item]
    lease: str | None = None
    """None: an own run, whose items never leave this process."""
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """What is committed now."""

    position: int
    recorded: RunStatus | None = None
    """The final status, once the end item is in."""
    late: bool = False
    """The control plane had ended the run alone."""


class AttemptUnknown(CodefyError):
    """No attempt of that number, or the lease isn't its."""

    default_code = "run.attempt_unknown"


class Fold:
    """Hands batches to the writer, and finds the event that a database refuses."""

    def __init__(self, writer: Writer, log: logging.Logger) -> None:
        self._writer = writer
        self._log = log

    async def take_in(self, batch: Batch, beside: Beside | None = None) -> Folded | Gap:
        """Commit what is new of a batch.

        Raises: AttemptUnknown; stream.BadItems and IllegalTransition for a stream that can't be;
        CodefyError ``server.busy``.
        """
        beside = beside or Beside()
        try:
            return await self._writer.run(lambda unit: _fold(unit, batch, beside), size=batch.size)
        except (DBAPIError, ValueError, OverflowError) as error:
            self._log.warning("run %s: a batch is stored one by one (%s)", batch.run_id, error)
        return await self._writer.run(lambda unit: _fold_singly(unit, batch, beside), size=batch.size)


async def _fold(unit: Unit, batch: Batch, beside: Beside) -> Folded | Gap:
    record = fitting(await unit.load(batch.run_id), batch)
    known = await unit.known_artifacts(batch.run_id, _artifacts(batch.items))
    beside = replace(beside, known_artifacts=known)
    change = take(record, batch.first, batch.items, at_ms=unit.at_ms, beside=beside)
    if isinstance(change, Gap):
        return change
    return _folded(await unit.save(change), late=record.state is State.LATE)


async def _fold_singly(unit: Unit, batch: Batch, beside: Beside) -> Folded | Gap:
    """As ``_fold``; an event that can't be stored is replaced in its place, and everything goes on."""
    folded: Folded | Gap | None = None
    for numbered in list(number(batch.first, batch.items)):
        one = Batch(
            run_id=batch.run_id,
            attempt=batch.attempt,
            first=numbered.first,
            items=(numbered.item,),
            lease=batch.lease,
        )
        changes = len(unit.changes)
        try:
            async with unit.connection.begin_nested():
                folded = await _fold(unit, one, beside)
        except (DBAPIError, ValueError, OverflowError) as error:
            if is_outage(error):
                raise  # it is the database that can't be used, and not the event that can't be stored
            del unit.changes[changes:]
            folded = await _fold(unit, one, Beside(poison={numbered.first: str(error)}))
        if isinstance(folded, Gap):
            return folded
    assert folded is not None
    return folded


def fitting(record: RunRecord | None, batch: Batch) -> RunRecord:
    """The record, if the batch is of its newest attempt and proves it.

    Raises: AttemptUnknown.
    """
    attempt = None if record is None else record.attempt_now
    if record is None or attempt is None or attempt.number != batch.attempt:
        raise AttemptUnknown(f"run {batch.run_id} has no attempt {batch.attempt}")
    if attempt.state is AttemptState.VOID or not lease_fits(attempt.lease_hash, batch.lease):
        raise AttemptUnknown(f"run {batch.run_id}, attempt {batch.attempt}: another one holds it")
    return record


def hash_lease(lease: str) -> str:
    """What is stored of a lease. It has 128 random bits, so a plain hash hides it."""
    return hashlib.sha256(lease.encode("utf-8", "surrogatepass")).hexdigest()


def lease_fits(lease_hash: str | None, lease: str | None) -> bool:
    if lease_hash is None or lease is None:
        return lease_hash is None and lease is None
    return hmac.compare_digest(lease_hash, hash_lease(lease))


def _artifacts(items: Sequence[Item]) -> set[str]:
    return {key for item in items if (key := artifact_of(item)) is not None}


def _folded(record: RunRecord, *, late: bool) -> Folded:
    recorded = record.status if record.state is State.SETTLED else None
    return Folded(position=record.now.position, recorded=recorded, late=late)
