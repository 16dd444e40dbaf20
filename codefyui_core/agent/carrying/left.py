"""What a process before this one left of an attempt's files. Blocking."""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from codefyui_core.agent.folder import JOURNAL
from codefyui_core.agent.spool import Spool
from codefyui_core.agent.stream import item
from codefyui_core.plugin.values import JsonObject
from codefyui_core.runs.events import EventType, WarningKind, warning_payload
from codefyui_core.runs.status import ArtifactState
from codefyui_core.wire.messages import ItemKind

from .copies import Stamp
from .journal import Journal, Recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """``goes_on``: how its processes ended is written down, so this one delivers what is left."""

    goes_on: bool
    told: tuple[bytes, ...]
    """Events of files that are settled, and whose events aren't in the stream any more."""
    lost: tuple[bytes, ...]
    """Events of files that nobody delivers, when it doesn't go on."""

    @property
    def events(self) -> tuple[bytes, ...]:
        return (*self.told, *self.lost)


def read_left(path: Path, spool: Spool, log: logging.Logger, *, goes_on: bool) -> Left | None:
    """None: it had no files."""
    if not (path / JOURNAL).exists():
        return None
    ledger = Journal(path / JOURNAL, log).ledger
    known = frozenset(_told(spool))
    told = [
        item(ItemKind.EVENT, one.payload, type=EventType.ARTIFACT, ts=one.ts)
        for key, one in ledger.settled.items()
        if key not in known
    ]
    return Left(goes_on=goes_on, told=tuple(told), lost=() if goes_on else tuple(_lost(ledger.unsettled)))


def _told(spool: Spool) -> Iterator[str]:
    """Ids of the files whose events are in the stream."""
    for payload in spool.payloads(ItemKind.EVENT):
        if b'"artifact_id"' not in payload:
            continue
        event = json.loads(payload)
        if event.get("type") == EventType.ARTIFACT and isinstance(event.get("payload"), dict):
            yield str(event["payload"].get("artifact_id"))


def _lost(unsettled: list[Recorded]) -> Iterator[bytes]:
    if not unsettled:
        return
    places = [_place(one) for one in unsettled]
    for recorded, place in zip(unsettled, places, strict=True):
        payload = recorded.payload | {"path": place, "state": ArtifactState.ON_WORKER.value}
        yield item(ItemKind.EVENT, payload, type=EventType.ARTIFACT, ts=recorded.ts)
    files = "1 file stays" if len(places) == 1 else f"{len(places)} files stay"
    detail = (
        f"{files} on the worker, whose agent was restarted while the run executed: {', '.join(places[:10])}"
    )
    warning: JsonObject = warning_payload(WarningKind.TRANSFER_FAILED, detail, len(places))
    yield item(ItemKind.EVENT, warning, type=EventType.WARNING)


def _place(recorded: Recorded) -> str:
    """Where it is: as the run wrote it, or what was kept of it."""
    path, snapshot = Path(str(recorded.payload["path"])), recorded.snapshot
    try:
        unchanged = not recorded.stamp or tuple(Stamp.of(path.lstat())) == recorded.stamp
    except OSError:
        unchanged = False
    return str(path) if unchanged or snapshot is None else snapshot
