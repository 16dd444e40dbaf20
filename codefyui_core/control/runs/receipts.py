"""What a storage backend has to see of a batch before it is taken in: its agent half's messages, and the receipts of
published files. I/O ahead of the fold, idempotent by the artifact's id.

A batch waits for answers only as long as they come. What a backend is busy for is stored with the batch: a file reads
``arriving`` then, and the outbox goes on asking. What follows of the attempt goes behind it, so that the order stays.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from pydantic import ValidationError

from codefyui_core.clocks import AttentiveClock
from codefyui_core.errors import Busy
from codefyui_core.runs.events import ArtifactRow, Derived, EventType, derive
from codefyui_core.runs.owed import Call, Owed
from codefyui_core.runs.record import RunRecord
from codefyui_core.runs.status import ArtifactState
from codefyui_core.wire.messages import Item, ItemKind

from .assignments import Served, served
from .board import Board
from .calls import Accepted, Answer, Calls, Key
from .fold import Batch
from .offers import Storages
from .outbox import left_text
from .stream import Beside, number

NOWHERE = "worker"
"""The ``backend`` of files of a run without one: they are on its worker."""
PATIENCE_S = 2.0
"""How long a batch waits without an answer."""
PAUSES_S = (0.2, 0.8)
"""Before the tries that follow when a backend says Busy: it may just have started."""


@dataclass(slots=True)
class _Looked:
    """A batch, as far as it is known what its items come to; by seq."""

    rows: dict[int, Accepted] = field(default_factory=dict)
    owed: list[Owed] = field(default_factory=list)
    """To be asked."""
    same: dict[int, int] = field(default_factory=dict)
    """Items that tell of a file again, and the first one of each."""
    seen: dict[str, int] = field(default_factory=dict)


class Receipts:
    """Asks the backends. ``holds``: something of an attempt isn't answered yet."""

    def __init__(
        self,
        *,
        board: Board,
        storages: Storages,
        calls: Calls,
        holds: Callable[[Key], bool],
        clock: AttentiveClock,
    ) -> None:
        self._board = board
        self._storages = storages
        self._calls = calls
        self._holds = holds
        self._clock = clock

    async def look(self, record: RunRecord, batch: Batch) -> Beside:
        """What its backend says of a batch, and what it couldn't say yet."""
        looked = _Looked()
        for numbered in number(batch.first, batch.items):
            if numbered.last > record.now.position:
                self._sort(record, numbered.first, numbered.item, looked)
        answers = await self._answers(record, looked.owed) if looked.owed else {}
        rows = looked.rows | {seq: answer for seq, answer in answers.items() if answer is not None}
        waiting = {one.seq: one for one in looked.owed if one.seq not in answers}
        rows |= {seq: _arriving(record, one) for seq, one in waiting.items() if one.call is Call.ACCEPT}
        rows |= {seq: rows[first] for seq, first in looked.same.items()}
        return Beside(
            accepted={seq: Derived(artifacts=(seen.row,)) for seq, seen in rows.items()},
            left={seq: left_text(seen) for seq, seen in rows.items() if seen.why},
            owed={seq: one.payload for seq, one in waiting.items()},
        )

    def _sort(self, record: RunRecord, seq: int, item: Item, looked: _Looked) -> None:
        has_backend = record.now.backend in self._storages.backends
        if item.kind is ItemKind.TOLD:
            message = item.payload.get("message")
            if has_backend and isinstance(message, dict):
                looked.owed.append(Owed(record.attempt, seq, Call.TOLD, message))
            return
        if item.kind is not ItemKind.EVENT or item.type != EventType.ARTIFACT:
            return
        for row in derive(EventType.ARTIFACT, item.payload).artifacts:
            first = looked.seen.setdefault(row.artifact_id, seq)
            if first != seq:
                looked.same[seq] = first
            elif has_backend and isinstance(item.payload.get("receipt"), dict):
                looked.owed.append(Owed(record.attempt, seq, Call.ACCEPT, item.payload))
            else:
                looked.rows[seq] = _left(record, row, item)

    async def _answers(self, record: RunRecord, owed: Sequence[Owed]) -> dict[int, Answer]:
        at = self._served(record)
        if at is None or self._holds((record.id, record.attempt)):
            return {}
        answers: dict[int, Answer] = {}

        async def note(one: Owed, answer: Answer) -> None:
            answers[one.seq] = answer

        asking = asyncio.ensure_future(self._calls.make(at, owed, note, PAUSES_S))
        try:
            while await self._goes_on(asking, answers):
                pass
        finally:
            asking.cancel()  # calls that are under way go on, and the outbox waits for them
            with suppress(asyncio.CancelledError, Busy):
                await asking
        return dict(answers)

    async def _goes_on(self, asking: "asyncio.Future[Busy | None]", answers: dict[int, Answer]) -> bool:
        """Wait for a while. False: it is over, or nothing came."""
        before = len(answers)
        timer = asyncio.ensure_future(self._clock.delay(PATIENCE_S))
        try:
            await asyncio.wait((asking, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        return not asking.done() and len(answers) > before

    def _served(self, record: RunRecord) -> Served | None:
        """None: it isn't on now. After a start of the server, backends come one by one."""
        with suppress(ValidationError):  # a ticket of another version of the plugin: the outbox says so
            return served(self._board, self._storages, record)
        return None


def _left(record: RunRecord, row: ArtifactRow, item: Item) -> Accepted:
    """Left where it is; of that, the worker has told."""
    backend = record.now.backend or NOWHERE
    why = ""
    if isinstance(item.payload.get("receipt"), dict):
        why = f"this server has no storage backend {backend}"
    return Accepted(replace(row, backend=backend, state=ArtifactState.ON_WORKER.value), why)


def _arriving(record: RunRecord, one: Owed) -> Accepted:
    (row,) = derive(EventType.ARTIFACT, one.payload).artifacts
    backend = record.now.backend or row.backend
    return Accepted(replace(row, backend=backend, state=ArtifactState.ARRIVING.value))
