"""How runs end when the server stops in order."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from sqlalchemy.exc import DBAPIError

from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.db.database import Database
from codefyui_core.errors import CodefyError
from codefyui_core.runs.machine import Event
from codefyui_core.runs.status import Cause, StopReason

from . import decisions
from .board import Board
from .feeds import Feeds
from .local import OwnRuns
from .tasks import Tasks
from .writer import Writer


class Shutdown:
    """Once a server. What it can't end in time is left to the next start."""

    def __init__(
        self,
        *,
        db: Database,
        board: Board,
        writer: Writer,
        feeds: Feeds,
        own: OwnRuns,
        placing: Tasks,
        clock: AttentiveClock,
        log: logging.Logger,
    ) -> None:
        self.begun = False
        self._keep = False
        self._db = db
        self._board = board
        self._writer = writer
        self._feeds = feeds
        self._own = own
        self._placing = placing
        self._clock = clock
        self._log = log

    @property
    def ends_all(self) -> bool:
        """What executes on workers isn't left to the next start."""
        return self.begun and not self._keep

    def begin(self, *, keep: bool) -> bool:
        """From now on nothing is accepted or placed. False: it had begun already."""
        if self.begun:
            return False
        self.begun, self._keep = True, keep
        return True

    async def end_runs(self, grace_s: float) -> None:
        """Store the intent, then stop what is to stop, for ``grace_s`` seconds at most."""
        try:
            await self._db.mark_shutdown("keep" if self._keep else "stop")
        except DBAPIError as error:
            self._log.error("that the server stops can't be stored: %s", error)
        try:
            await self._within(grace_s, self._placing.wait())
            await self._stop_runs(grace_s)
        except CodefyError as error:
            self._log.error("not every run could be stopped in order: %s", error.message)

    async def _stop_runs(self, grace_s: float) -> None:
        if not self._keep:
            await self._end_left(away_only=True)
        for record in list(self._board.flights.values()):
            if record.state in decisions.EXECUTING and (record.now.worker_id is None or not self._keep):
                await self._writer.run(decisions.stop(record.id, StopReason.SERVER_STOP))
        await self._wait_for_ends(grace_s, own_only=self._keep)
        await self._within(grace_s, self._kill_own())
        if not self._keep:
            await self._end_left(away_only=False)

    async def _kill_own(self) -> None:
        executions = self._own.all()
        for execution in executions:
            await execution.kill()
        for execution in executions:
            await execution.ended.wait()

    async def _within(self, seconds: float, work: Coroutine[Any, Any, None]) -> None:
        """Wait for something, but not for ever; what isn't done by then is cancelled."""
        doing = asyncio.ensure_future(work)
        over = asyncio.ensure_future(self._clock.delay(seconds))
        try:
            await asyncio.wait((doing, over), return_when=asyncio.FIRST_COMPLETED)
        finally:
            doing.cancel()
            over.cancel()
            await asyncio.wait((doing, over))

    async def _wait_for_ends(self, grace_s: float, *, own_only: bool) -> None:
        """Until nothing executes, at most for the grace."""
        with self._feeds.watching() as watcher:
            over = asyncio.ensure_future(self._clock.delay(grace_s))
            try:
                while self._executing(own_only=own_only) and not over.done():
                    news = asyncio.ensure_future(watcher.wake.wait())
                    await asyncio.wait((news, over), return_when=asyncio.FIRST_COMPLETED)
                    news.cancel()
                    watcher.take()
            finally:
                over.cancel()

    def _executing(self, *, own_only: bool) -> bool:
        return any(
            record.state in decisions.EXECUTING and (record.now.worker_id is None or not own_only)
            for record in self._board.flights.values()
        )

    async def _end_left(self, *, away_only: bool) -> None:
        """T6: the last line of a shutdown, for runs of workers."""
        text = "the server was stopped before its worker reported the end"
        conclusion = decisions.interrupted(text, Cause.SHUTDOWN)
        states = decisions.AWAY if away_only else decisions.EXECUTING
        for record in list(self._board.flights.values()):
            if record.state in states and record.now.worker_id is not None:
                end = decisions.end_alone(
                    record.id, Event.SHUTDOWN_OVER, record.attempt, lambda _record: conclusion
                )
                await self._writer.run(end)
