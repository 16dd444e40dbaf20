"""What storage backends haven't answered yet: asked again until they do, also after a restart and after the run is over.

A row is stored in the transaction of what it is about (a message, a receipt, the end of an attempt) and removed in the
transaction of the answer. The rows of one attempt are a line; a line is worked off in order, by a task of its own.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sqlalchemy import select

from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.db.database import Database
from codefyui_core.control.db.outages import log_failure
from codefyui_core.control.db.tables import storage_outbox
from codefyui_core.errors import Busy
from codefyui_core.runs.events import WarningKind
from codefyui_core.runs.owed import LAST, Call, Owed
from codefyui_core.runs.status import ArtifactState
from codefyui_core.runs.steps import Change, Draft

from .assignments import Served, served_before
from .calls import Accepted, Answer, Calls, Key
from .decisions import OVER
from .offers import Storages
from .tasks import Tasks
from .unit import Unit
from .writer import Writer

PAGE = 1_000
FIRST_S = 1.0
MOST_S = 60.0
"""Between two tries, unless the backend asks for longer."""
ASKED_MOST_S = 600.0
LET_GO_S = 60.0
"""How long a run that is removed waits for a backend that doesn't answer."""


@dataclass(slots=True)
class _Line:
    """Of one attempt."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Something is new: look at once."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    tries: int = 0
    gone: bool = False
    """The run is about to be removed."""


class Outbox:
    """``start`` it once; then it follows the commits. ``changed`` is told of a run with an artifact that changed."""

    def __init__(
        self,
        *,
        db: Database,
        writer: Writer,
        storages: Storages,
        calls: Calls,
        tasks: Tasks,
        clock: AttentiveClock,
        log: logging.Logger,
        changed: Callable[[str], None],
    ) -> None:
        self._db = db
        self._writer = writer
        self._storages = storages
        self._calls = calls
        self._tasks = tasks
        self._clock = clock
        self._log = log
        self._changed = changed
        self._lines: dict[Key, _Line] = {}

    async def start(self) -> None:
        """Go on with what the last server left."""
        async with self._db.read() as connection:
            left = select(storage_outbox.c.run_id, storage_outbox.c.attempt).distinct()
            for run_id, attempt in (await connection.execute(left)).all():
                self._look_at((run_id, attempt))

    def committed(self, changes: Sequence[Change], deleted: Sequence[str]) -> None:
        """Told by the writer."""
        for change in changes:
            for attempt in {one.attempt for one in change.owed}:
                self._look_at((change.after.id, attempt))
        for run_id in deleted:
            for _, line in self._of(run_id):
                line.gone = True
                line.wake.set()

    def holds(self, key: Key) -> bool:
        """The backend hasn't answered everything of an attempt: what comes next goes behind it."""
        return key in self._lines

    def look_again(self) -> None:
        """A backend may be back."""
        for line in self._lines.values():
            line.tries = 0
            line.wake.set()

    async def ask_now(self, run_id: str) -> None:
        """Ask about what reads ``arriving`` once more, within 60 s."""
        for key, line in self._of(run_id):
            with suppress(TimeoutError, Busy):
                async with asyncio.timeout(LET_GO_S), line.turn:
                    await self._round(key, but_the_end=True)

    async def let_go(self, run_id: str) -> None:
        """The run is about to be removed: its backends are told of that instead, once they aren't at this any more."""
        for _, line in self._of(run_id):
            line.gone = True
            line.wake.set()
        await self.ask_now(run_id)

    def _of(self, run_id: str) -> Sequence[tuple[Key, _Line]]:
        return [(key, line) for key, line in self._lines.items() if key[0] == run_id]

    # ------------------------------------------------------------ one line

    def _look_at(self, key: Key) -> None:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
            self._tasks.start(self._work_off(key, line), name=f"outbox {key[0]}")
        line.wake.set()

    async def _work_off(self, key: Key, line: _Line) -> None:
        try:
            while not line.gone:
                line.wake.clear()
                busy = await self._look(key, line)
                if busy is not None:
                    await self._pause(wait_s(line.tries, busy.retry_after_s), line.wake)
                    line.tries += 1
                elif not line.wake.is_set():
                    return
        finally:
            del self._lines[key]

    async def _look(self, key: Key, line: _Line) -> Busy | None:
        """Why the line isn't empty."""
        try:
            async with line.turn:
                busy = None if line.gone else await self._round(key)
        except Busy as error:
            busy = error
        except Exception as error:
            log_failure(self._log, error, "run %s: its storage backend can't be told now", key[0])
            busy = Busy(str(error))
        if busy is not None and line.tries == 0:
            self._log.info("run %s: its storage backend is busy, and asked again later (%s)", key[0], busy)
        return busy

    async def _round(self, key: Key, *, but_the_end: bool = False) -> Busy | None:
        """One try of everything. The answer: why something is left.

        Raises: Busy.
        """
        busy, after = None, -1
        while True:
            owed, at = await self._read(key, after, LAST - 1 if but_the_end or busy else LAST)
            if not owed:
                return busy
            if at is None:
                raise Busy("the storage backend isn't on")
            busy = await self._calls.make(at, owed, lambda one, answer: self._note(key, one, answer)) or busy
            after = owed[-1].seq

    async def _read(self, key: Key, after: int, last: int) -> tuple[Sequence[Owed], Served | None]:
        table = storage_outbox.c
        where = (table.run_id == key[0], table.attempt == key[1], table.seq > after, table.seq <= last)
        found = select(table.attempt, table.seq, table.call, table.payload).where(*where)
        async with self._db.read() as connection:
            rows = (await connection.execute(found.order_by(table.seq).limit(PAGE))).all()
            at = await served_before(connection, self._storages, *key) if rows else None
        return [Owed(attempt, seq, Call(call), payload) for attempt, seq, call, payload in rows], at

    async def _note(self, key: Key, one: Owed, answer: Answer) -> None:
        """The answer takes the place of the row."""
        run_id = key[0]

        async def decide(unit: Unit) -> bool:
            if not await unit.answered(run_id, one) or answer is None:
                return False
            placed = await unit.place_artifact(run_id, answer.row, ArtifactState.ARRIVING)
            if placed and answer.why:
                await _warn(unit, run_id, left_text(answer))
            return placed

        if await self._writer.run(decide):
            self._changed(run_id)

    async def _pause(self, seconds: float, wake: asyncio.Event) -> None:
        waits = {asyncio.ensure_future(self._clock.delay(seconds)), asyncio.ensure_future(wake.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


def wait_s(tries: int, asked_s: float | None) -> float:
    """Before the next try: doubling from one second to a minute, and no less than what the backend asks for."""
    own = min(MOST_S, FIRST_S * 2.0 ** min(tries, 16))
    return max(own, min(ASKED_MOST_S, asked_s or 0.0))


def left_text(answer: Accepted) -> str:
    """For people: a file that isn't taken."""
    return f"{answer.row.name} stays on the worker: {answer.why}"


async def _warn(unit: Unit, run_id: str, text: str) -> None:
    """Unless the log of the run is closed."""
    record = await unit.load(run_id)
    if record is not None and record.state not in OVER:
        draft = Draft(before=record, at_ms=unit.at_ms)
        draft.warn(WarningKind.TRANSFER_FAILED, text)
        await unit.save(draft.done())
