"""The one task that writes runs: decisions in the order they came, several to a commit.

Each decision is a function that reads what it needs inside the transaction, so it can be run again: after the
database was busy, and after a commit whose outcome is unknown, when reading again shows what became of it.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from codefyui_core.clocks import AttentiveClock, elapsed_s
from codefyui_core.control.db.database import Database
from codefyui_core.control.db.outages import is_outage
from codefyui_core.control.db.tables import control
from codefyui_core.control.db.times import milliseconds
from codefyui_core.errors import CodefyError
from codefyui_core.runs.steps import Change

from .unit import Stale, Unit

T = TypeVar("T")
NOT_NOW = frozenset({"server.busy", "storage.full", "server.stopping", "server.replaced"})
"""Codes of a decision that wasn't committed, through no fault of its own."""
PASSING = frozenset({"server.busy", "storage.full"})
"""Those that may be over in a while."""
CLOSE_S = 30.0
MAX_EVENTS = 2_000
MAX_BYTES = 1 << 20
STALE_TRIES = 3
TRIES = 10
"""Of a decision, before its caller is told that the database can't be written: about 12 s."""


Listener = Callable[[Sequence[Change], Sequence[str]], None]
"""Told after each commit what changed and which runs are gone, in order. Must neither wait nor fail."""


class Replaced(CodefyError):
    """Another server has taken the database over; this one may write nothing more."""

    default_code = "server.replaced"


class _Undone(Exception):
    """A decision failed: nothing of its transaction is to be committed."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


@dataclass(slots=True)
class _Job(Generic[T]):
    work: Callable[[Unit], Awaitable[T]]
    size: int
    future: asyncio.Future[T]
    tries: int = 0
    stale: int = 0


@dataclass(slots=True)
class _Done:
    job: _Job[Any]
    result: Any = None
    error: BaseException | None = None
    unit: Unit | None = field(default=None)


class Writer:
    """``run`` a decision; ``start`` and ``aclose`` are its owner's."""

    def __init__(self, db: Database, clock: AttentiveClock, log: logging.Logger) -> None:
        self._db = db
        self._clock = clock
        self._log = log
        self._jobs: deque[_Job[Any]] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._replaced = False
        self.listeners: list[Listener] = []
        self.healthy = True
        """False while the database can't be written: a clock that counts duty time asks."""
        self.events = 0
        """Committed since the start."""
        self.commits = 0
        self.commit_seconds = 0.0

    def start(self) -> None:
        self._task = asyncio.create_task(self._write(), name="runs-writer")

    async def aclose(self) -> None:
        """Commit what was asked for, then end."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            _, left = await asyncio.wait({self._task}, timeout=CLOSE_S)
            for task in left:
                self._log.error("the database doesn't answer; what wasn't committed is lost")
                task.cancel()

    async def run(self, work: Callable[[Unit], Awaitable[T]], *, size: int = 0) -> T:
        """Commit one decision. ``size``: about how many bytes it writes.

        Raises: what ``work`` raises; CodefyError ``server.busy`` when the database can't be written for
        long; Replaced.
        """
        if self._closing or self._replaced:
            raise _stopped() if self._closing else _replaced()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        job = _Job(work=work, size=size, future=future)
        self._jobs.append(job)
        self._wake.set()
        return await future

    async def _write(self) -> None:
        failures = 0
        while True:
            if not self._jobs:
                if self._closing:
                    return
                self._wake.clear()
                await self._wake.wait()
                continue
            batch: list[_Job[Any]] = []
            began = elapsed_s()
            try:
                done = await self._commit(batch)
            except Exception as error:
                failures += 1
                await self._failed(batch, error, failures)
                continue
            failures = 0
            self.healthy = True
            self._count(done, elapsed_s() - began)
            self._tell(done)

    async def _commit(self, batch: list[_Job[Any]]) -> list[_Done]:
        """One transaction; ``batch`` is filled with what it took from the queue."""
        if len(self._jobs) == 1:
            return [await self._commit_one(self._jobs.popleft(), batch)]
        done: list[_Done] = []
        events = size = 0
        async with self._db.begin() as connection:
            await self._check_epoch(connection)
            while self._jobs and events < MAX_EVENTS and size < MAX_BYTES:
                job = self._jobs.popleft()
                batch.append(job)
                one = await self._do(job, connection)
                done.append(one)
                events += one.unit.weight if one.unit else 0
                size += job.size
        return done

    async def _commit_one(self, job: _Job[Any], batch: list[_Job[Any]]) -> _Done:
        """The same for one decision: undone with the transaction, it needs no savepoint."""
        batch.append(job)
        try:
            async with self._db.begin() as connection:
                await self._check_epoch(connection)
                if job.future.done():
                    return _Done(job)
                unit = self._unit(connection)
                try:
                    result = await job.work(unit)
                except Exception as error:
                    raise _Undone(error) from error
            return _Done(job, result=result, unit=unit)
        except _Undone as undone:
            if is_outage(undone.error):
                raise undone.error from undone
            if isinstance(undone.error, Stale) and job.stale < STALE_TRIES:
                job.stale += 1
                return await self._commit_one(job, [])
            return _Done(job, error=undone.error)

    def _unit(self, connection: AsyncConnection) -> Unit:
        return Unit(connection, at_ms=milliseconds(self._clock), epoch=self._db.epoch)

    async def _check_epoch(self, connection: AsyncConnection) -> None:
        epoch = await connection.scalar(select(control.c.server_epoch).with_for_update(read=True))
        if epoch != self._db.epoch:
            raise _replaced()

    async def _do(self, job: _Job[Any], connection: AsyncConnection) -> _Done:
        if job.future.done():
            return _Done(job)
        unit = self._unit(connection)
        savepoint = await connection.begin_nested()
        try:
            result = await job.work(unit)
        except Exception as error:
            if is_outage(error):
                raise
            await savepoint.rollback()
            if isinstance(error, Stale) and job.stale < STALE_TRIES:
                job.stale += 1
                return await self._do(job, connection)
            return _Done(job, error=error)
        await savepoint.commit()  # where this fails, nothing of the transaction may be committed
        return _Done(job, result=result, unit=unit)

    def _count(self, done: Sequence[_Done], seconds: float) -> None:
        self.events += sum(one.unit.weight for one in done if one.unit is not None)
        self.commits += 1
        self.commit_seconds += seconds

    def _tell(self, done: Sequence[_Done]) -> None:
        """Listeners first, so that whoever asked finds their view up to date."""
        for one in done:
            if one.unit is not None and (one.unit.changes or one.unit.deleted):
                for listener in self.listeners:
                    try:
                        listener(one.unit.changes, one.unit.deleted)
                    except Exception:
                        self._log.exception("a listener failed after a commit")
            if one.job.future.done():
                continue
            if one.error is None:
                one.job.future.set_result(one.result)
            else:
                one.job.future.set_exception(one.error)

    async def _failed(self, batch: Sequence[_Job[Any]], error: Exception, failures: int) -> None:
        """Nothing of the batch counts as done: put it back in front, or give up on what waited for long."""
        if isinstance(error, Replaced) or not is_outage(error):
            # With nothing taken from the queue the fault is in the transaction itself, and so everybody's.
            alone = bool(batch) and not isinstance(error, Replaced)
            self._give_up(batch if alone else [*batch, *self._jobs], error)
            return
        self.healthy = False
        self._log.warning("the database can't be written now (%s); trying again", _text(error))
        self._jobs.extendleft(reversed(batch))
        for job in self._jobs:
            job.tries += 1
        self._give_up([job for job in self._jobs if job.tries >= TRIES], _busy(error))
        await self._clock.delay(random.uniform(0, min(2.0, 0.02 * 2**failures)))

    def _give_up(self, jobs: Sequence[_Job[Any]], error: Exception) -> None:
        if isinstance(error, Replaced):
            self._replaced = True
            self._log.critical("%s", error)
        for job in jobs:
            if not job.future.done():
                job.future.set_exception(error)
        self._jobs = deque(job for job in self._jobs if not job.future.done())


def _busy(error: Exception) -> CodefyError:
    text = _text(error)
    full = "disk is full" in text.lower() or "no space left" in text.lower()
    advice = "Make room on its disk, then try again." if full else "Try again later."
    code = "storage.full" if full else "server.busy"
    return CodefyError(f"The database can't be written: {text}. {advice}", code=code)


def _text(error: Exception) -> str:
    """The driver's own words, without the statement."""
    return str(error.orig if isinstance(error, DBAPIError) and error.orig is not None else error)


def _stopped() -> CodefyError:
    return CodefyError("The server is stopping.", code="server.stopping")


def _replaced() -> Replaced:
    return Replaced("Another control plane has taken over this database; restart this one to see why.")
