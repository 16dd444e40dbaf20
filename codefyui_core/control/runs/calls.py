"""Calls of storage backends for attempts: one try each, and what it comes to in the words of rows.

Calls for one attempt don't overlap, but for receipts of different files. One that is under way is never made a second
time: whoever asks for it again waits for the same one.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError

from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.db.outages import is_outage
from codefyui_core.errors import Busy, CodefyError
from codefyui_core.plugin.storage import Output, StoredObject
from codefyui_core.runs.events import ArtifactRow, EventType, artifact_key, derive
from codefyui_core.runs.owed import Call, Owed
from codefyui_core.runs.status import ArtifactState

from .assignments import Served
from .tasks import Tasks
from .writer import NOT_NOW

AT_ONCE = 16
"""Receipts that one backend looks at at the same time."""
Key = tuple[str, int]


class Accepted(NamedTuple):
    """What a backend makes of a receipt."""

    row: ArtifactRow
    why: str = ""
    """It isn't taken, for this reason."""


Answer = Accepted | None
Note = Callable[[Owed, Answer], Awaitable[None]]
"""Told of each answer as it comes."""


class Calls:
    """Makes them. Tasks of ``tasks`` go on with calls that nobody waits for any more."""

    def __init__(self, *, tasks: Tasks, clock: AttentiveClock, log: logging.Logger) -> None:
        self._tasks = tasks
        self._clock = clock
        self._log = log
        self._running: dict[Key, dict[int, asyncio.Task[Answer | Busy]]] = {}
        self._rooms: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(AT_ONCE))

    async def make(
        self, at: Served, owed: Iterable[Owed], note: Note, pauses_s: Sequence[float] = ()
    ) -> Busy | None:
        """In order, receipts that follow each other at the same time. The answer: why some are to be made again.
        A receipt that is to be asked for again holds up nothing but the end. ``pauses_s``: before each further try.

        Raises: Busy for a message or an end, which hold up what follows.
        """
        busy: Busy | None = None
        for call, group in groupby(owed, key=lambda one: one.call):
            if call is Call.ACCEPT:
                busy = await self._receipts(at, list(group), note, pauses_s) or busy
                continue
            if call is Call.SETTLED and busy is not None:
                return busy
            for one in group:
                if error := await self._try(at, one, note, pauses_s):
                    raise error
        return busy

    async def _receipts(
        self, at: Served, owed: Sequence[Owed], note: Note, pauses_s: Sequence[float]
    ) -> Busy | None:
        """A backend that is busy for many in a row is away: the rest isn't asked for."""
        busy: Busy | None = None
        left, misses = iter(owed), 0

        async def ask() -> None:
            nonlocal busy, misses
            for one in left:
                found = await self._try(at, one, note, pauses_s)
                busy = found or busy
                misses = misses + 1 if found else 0
                if misses >= AT_ONCE:
                    return

        asked = (ask() for _ in range(min(AT_ONCE, len(owed))))
        for problem in await asyncio.gather(*asked, return_exceptions=True):
            if problem is not None:
                raise problem
        return busy

    async def _try(self, at: Served, one: Owed, note: Note, pauses_s: Sequence[float]) -> Busy | None:
        answer = await self._shared(at, one)
        for pause_s in pauses_s:
            if not isinstance(answer, Busy):
                break
            await self._clock.delay(pause_s)
            answer = await self._shared(at, one)
        return answer if isinstance(answer, Busy) else await _noted(note, one, answer)

    async def _shared(self, at: Served, one: Owed) -> Answer | Busy:
        running = self._running.get(at.key, {}).get(one.seq)
        if running is None:
            running = await self._started(at, one)
        return await asyncio.shield(running)

    async def _started(self, at: Served, one: Owed) -> "asyncio.Task[Answer | Busy]":
        room = self._rooms[at.backend.name] if one.call is Call.ACCEPT else None
        if room is not None:
            await room.acquire()
        else:
            await self._others_over(at.key)
        task = self._tasks.start(self._once(at, one), name=f"{one.call} {at.key[0]}")
        running = self._running.setdefault(at.key, {})
        running[one.seq] = task

        def over(_task: "asyncio.Task[Answer | Busy]") -> None:
            del running[one.seq]
            if not running:
                self._running.pop(at.key, None)
            if room is not None:
                room.release()

        task.add_done_callback(over)
        return task

    async def _others_over(self, key: Key) -> None:
        while others := self._running.get(key):
            await asyncio.wait(set(others.values()))

    async def _once(self, at: Served, one: Owed) -> Answer | Busy:
        try:
            match one.call:
                case Call.TOLD:
                    await at.store.told(at.given, one.payload)
                case Call.ACCEPT:
                    return await self._accept(at, one)
                case Call.SETTLED:
                    await at.store.settled(at.given)
        except Exception as error:
            if busy := _not_now(error):
                return busy
            refused = "its storage backend refused a message"
            what = refused if one.call is Call.TOLD else "what came in half stays"
            _log_refusal(self._log, error, f"run {at.key[0]}: {what}")
        return None

    async def _accept(self, at: Served, one: Owed) -> Accepted:
        (row,) = derive(EventType.ARTIFACT, one.payload).artifacts
        try:
            receipt = at.backend.receipt.model_validate(one.payload.get("receipt"))
            stored = await at.store.accept(at.given, _output(row), receipt)
        except Exception as error:
            if _not_now(error):
                raise
            _log_refusal(self._log, error, f"run {at.key[0]}: {row.name} stays on its worker")
            return Accepted(replace(row, state=ArtifactState.ON_WORKER.value), _why(error, at))
        return Accepted(stored_row(stored, at.backend.name, row))


def _output(row: ArtifactRow) -> Output:
    """Of a row that a worker told of. Raises: ValidationError."""
    return Output(
        key=row.artifact_id,
        kind=row.kind,
        name=row.name,
        relative_path=row.relative_path or row.name,
        node_id=row.node_id,
        size_bytes=row.size_bytes,
    )


async def _noted(note: Note, one: Owed, answer: Answer) -> Busy | None:
    """An answer that can't be kept now is asked for again: calls bear being repeated."""
    try:
        await note(one, answer)
    except CodefyError as error:
        if busy := _not_now(error):
            return busy
        raise
    return None


def _not_now(error: Exception) -> Busy | None:
    """It says nothing of what was asked: try again."""
    if isinstance(error, Busy):
        return error
    outage = isinstance(error, SQLAlchemyError) and is_outage(error)
    if outage or (isinstance(error, CodefyError) and error.code in NOT_NOW):
        return Busy(str(error))
    return None


def _why(error: Exception, at: Served) -> str:
    """For people."""
    if isinstance(error, CodefyError):
        return error.message
    if isinstance(error, ValidationError):
        return "its receipt can't be read"
    return f"the storage backend {at.backend.name} failed with it; the server's log has the details"


def _log_refusal(log: logging.Logger, error: Exception, what: str) -> None:
    """With its origin for a bug of the plugin."""
    explained = isinstance(error, CodefyError | ValidationError)
    log.warning("%s: %s", what, error, exc_info=None if explained else error)


def stored_row(stored: StoredObject, backend: str, said: ArtifactRow | None = None) -> ArtifactRow:
    """What a backend says of an object, as a row; ``said`` is what the run said of it."""
    return ArtifactRow(
        artifact_id=artifact_key(stored.key),
        kind=stored.kind,
        name=stored.name,
        backend=backend,
        label=stored.label,
        relative_path=stored.relative_path,
        path=None if said is None else said.path,
        size_bytes=stored.size_bytes,
        sha256=stored.sha256,
        state=ArtifactState.STORED,
        node_id=None if said is None else said.node_id,
        meta=None if said is None else said.meta,
        data=dict(stored.data),
    )
