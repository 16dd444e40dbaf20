"""Taking an attempt's stream in: which items of a batch are new, and what they do to the run. Pure.

Items are numbered from 1 without gaps; ``position`` is the highest one that was taken in. What lies at or below
it is skipped, what begins beyond the next one is refused with the position to go back to.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from codefyui_core.errors import CodefyError
from codefyui_core.plugin.values import JsonObject
from codefyui_core.runs.conclude import Evidence, conclude
from codefyui_core.runs.events import (
    CLOSING,
    MAX_INT,
    NOTHING,
    Derived,
    EventType,
    WarningKind,
    artifact_key,
    derive,
    storable,
    unstorable,
)
from codefyui_core.runs.machine import Event, State
from codefyui_core.runs.owed import Call
from codefyui_core.runs.record import RunRecord
from codefyui_core.runs.status import FINAL, Cause, Outcome, StopReason
from codefyui_core.runs.steps import Change, Details, Draft, advance
from codefyui_core.wire.messages import AcceptedItem, EndItem, ExitedItem, Item, ItemKind, SkipItem

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Gap:
    """The batch begins beyond the next position."""

    position: int


class Numbered(NamedTuple):
    """An item with the positions that it stands for: one, or a range for ``skip``."""

    first: int
    last: int
    item: Item


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What was found out about a batch before it is taken in."""

    accepted: Mapping[int, Derived] = field(default_factory=dict)
    """By seq: the rows that a storage backend's answer stands for, or that stand for one that is still to come."""
    owed: Mapping[int, JsonObject] = field(default_factory=dict)
    """By seq: what a storage backend couldn't be told yet, which is stored with the batch and told later."""
    left: Mapping[int, str] = field(default_factory=dict)
    """By seq: why a file that an item told of as published counts as left on its worker, for people."""
    known_artifacts: frozenset[str] = frozenset()
    """Listed already, so that the item that tells of them makes no second event."""
    poison: Mapping[int, str] = field(default_factory=dict)
    """By seq: events that the database refused, with its reason."""


class BadItems(CodefyError):
    """A batch that no agent of this protocol sends."""

    default_code = "run.items_invalid"


def take(
    record: RunRecord,
    first: int,
    items: Sequence[Item],
    *,
    at_ms: int,
    beside: Beside | None = None,
) -> Change | Gap:
    """Fold a batch into the run.

    Raises: BadItems, IllegalTransition.
    """
    attempt = record.now
    if first > attempt.position + 1:
        return Gap(attempt.position)
    beside = beside or Beside()
    draft = Draft(before=record, at_ms=at_ms)
    heard: RunRecord | None = None
    for numbered in number(first, items):
        if numbered.last <= draft.position:
            continue
        if draft.run is heard and numbered.item.kind is ItemKind.EVENT:
            # The record is as it was at an event before: what it allows is known.
            _take_event(draft, numbered.first, numbered.item, beside)
        elif draft.run.state is not State.SETTLED:
            _take_one(draft, numbered, beside)
            listens = numbered.item.kind is ItemKind.EVENT and draft.run.status not in FINAL
            heard = draft.run if listens else None
        draft.position = numbered.last
    return draft.done()


def number(first: int, items: Sequence[Item]) -> Iterator[Numbered]:
    """The positions of each item.

    Raises: BadItems for a ``skip`` that doesn't begin where it stands.
    """
    seq = first
    for item in items:
        last = seq
        if item.kind is ItemKind.SKIP:
            skip = _read(SkipItem, item)
            if skip.from_ != seq or not seq <= skip.to <= MAX_INT:
                raise BadItems(f"a skip at {seq} says {skip.from_} to {skip.to}")
            last = skip.to
        yield Numbered(seq, last, item)
        seq = last + 1


def _take_one(draft: Draft, numbered: Numbered, beside: Beside) -> None:
    item = numbered.item
    match item.kind:
        case ItemKind.EVENT:
            advance(draft, Event.ITEM, Details())
            if draft.run.status not in FINAL:
                _take_event(draft, numbered.first, item, beside)
        case ItemKind.ACCEPTED:
            _take_accepted(draft, _read(AcceptedItem, item))
        case ItemKind.ENVIRONMENT:
            advance(draft, Event.ITEM, Details())
            _take_environment(draft, item.payload)
        case ItemKind.EXITED:
            _take_exited(draft, _read(ExitedItem, item))
        case ItemKind.SKIP:
            _take_skip(draft, numbered)
        case ItemKind.TOLD:
            advance(draft, Event.ITEM, Details())
            if numbered.first in beside.owed:
                draft.owe(numbered.first, Call.TOLD, beside.owed[numbered.first])
        case ItemKind.END:
            _take_end(draft, _read(EndItem, item))


def _take_event(draft: Draft, seq: int, item: Item, beside: Beside) -> None:
    artifact = artifact_of(item)
    if artifact is not None and (artifact in beside.known_artifacts or artifact in draft.artifact_ids):
        return
    type_, text = storable(item.type or "", item.payload, seq)
    if type_ in CLOSING:
        type_, text = unstorable(seq, text.encode("ascii"), f"{type_} isn't a run's own to report")
    if seq in beside.poison:
        type_, text = unstorable(seq, text.encode("ascii"), beside.poison[seq])
    ts = item.ts if item.ts is not None and 0 <= item.ts <= MAX_INT else draft.at_ms
    derived = beside.accepted.get(seq) if type_ == item.type else NOTHING
    derived = derive(type_, item.payload) if derived is None else derived
    draft.append_text(type_, text, derived, ts=ts, seq=seq)
    if seq in beside.owed and type_ == item.type:
        draft.owe(seq, Call.ACCEPT, beside.owed[seq])
    if seq in beside.left and type_ == item.type:
        draft.warn(WarningKind.TRANSFER_FAILED, beside.left[seq])


def artifact_of(item: Item) -> str | None:
    """The key of the artifact that an item lists."""
    if item.kind is not ItemKind.EVENT or item.type != EventType.ARTIFACT:
        return None
    artifact_id = item.payload.get("artifact_id")
    return artifact_key(artifact_id) if isinstance(artifact_id, str) and artifact_id else None


def _take_accepted(draft: Draft, accepted: AcceptedItem) -> None:
    advance(draft, Event.ACCEPTED, Details())
    if draft.run.status in FINAL:
        return
    draft.set_attempt(incarnation=accepted.incarnation[:32])
    if draft.run.now.worker_id is not None:
        draft.merge_facts({"digest": accepted.fingerprint, "fingerprint_source": "worker"})


def _take_environment(draft: Draft, payload: Mapping[str, Any]) -> None:
    """What the run process itself found replaces what its agent saw before."""
    if draft.run.status in FINAL:
        return
    source = "worker-run" if draft.run.now.worker_id is not None else "run"
    draft.merge_facts({"fingerprint_source": source} | dict(payload) if "fingerprint" in payload else payload)


def _take_exited(draft: Draft, exited: ExitedItem) -> None:
    advance(draft, Event.EXITED, Details())
    draft.set_attempt(evidence=exited.model_dump(mode="json"), slots_released=True)
    if draft.run.status not in FINAL:
        draft.set(
            exit_code=exited.exit_code,
            signal=exited.signal,
            peak_memory_bytes=exited.peak_memory_bytes,
            stderr_tail=exited.stderr_tail,
        )


def _take_skip(draft: Draft, numbered: Numbered) -> None:
    """Positions that will never come. Taken in the middle, only the rest counts as lost."""
    skip = _read(SkipItem, numbered.item)
    event = Event.ACCEPTED if draft.run.state in _NOT_ACCEPTED else Event.ITEM
    advance(draft, event, Details())
    if skip.reason != "late" and draft.run.status not in FINAL:
        count = numbered.last - max(draft.position, numbered.first - 1)
        detail = f"{count} events were lost on the worker ({skip.reason})"
        draft.warn(WarningKind.EVENTS_LOST, detail, count)


_NOT_ACCEPTED = frozenset({State.ASSIGNED, State.AWAY_ASSIGNED})


def _take_end(draft: Draft, end: EndItem) -> None:
    if draft.run.state in _NOT_ACCEPTED:
        # The records before the end were lost with the disk that they were on, ``accepted`` among them.
        advance(draft, Event.ACCEPTED, Details())
    conclusion = conclude(evidence_of(draft.run, end))
    advance(draft, Event.END, Details(conclusion=conclusion))


def evidence_of(run: RunRecord, end: EndItem) -> Evidence:
    """What the end says, with who asked for the stop as this side knows it."""
    return Evidence(
        outcome=end.outcome,
        error=end.error,
        cause=_cause(end.cause),
        stop_reason=_stop_reason(run, end),
        stopped_in_time=end.stopped_in_time,
        exit_code=end.exit_code,
        signal=end.signal,
        out_of_memory=end.out_of_memory,
        grace_s=end.grace_s,
    )


def _stop_reason(run: RunRecord, end: EndItem) -> StopReason | None:
    """A stop that crossed with the end of a process on its own isn't why it ended."""
    stopped = end.stop_reason is not None or end.outcome is Outcome.STOPPED
    if not stopped:
        return None
    if run.stop_reason is StopReason.USER or end.stop_reason is None:
        return run.stop_reason
    return end.stop_reason


def _cause(code: str | None) -> Cause | None:
    return Cause(code) if code is not None and code in set(Cause) else None


def _read(model: type[M], item: Item) -> M:
    try:
        return model.model_validate(item.payload)
    except ValidationError as error:
        raise BadItems(f"an item {item.kind.value} can't be read: {error.errors()[0]['msg']}") from error
