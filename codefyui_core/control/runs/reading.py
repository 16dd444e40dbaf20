"""What people and programs read of runs: rows, pages of events, metrics, artifacts, and the live feeds."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Row, func, select

from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.db.database import Database
from codefyui_core.control.db.tables import artifacts, runs
from codefyui_core.errors import CodefyError
from codefyui_core.plugin.storage import Place, Reading, StorageControl
from codefyui_core.plugin.values import JsonObject
from codefyui_core.runs.events import NewEvent
from codefyui_core.runs.status import ACTIVE, ArtifactState

from .board import Board
from .feeds import Feeds, Follower, closes
from .reasons import Reasons
from .removal import stored_object
from .views import (
    artifact_json,
    artifact_rows,
    event_json,
    event_of,
    filters,
    metric_json,
    metric_rows,
    page,
    run_row,
    shown_runs,
)

log = logging.getLogger(__name__)
PAGE = 500
MAX_WAIT_S = 60.0
ROW_INTERVAL_S = 0.1
"""Between two rows of one run on ``/api/stream``."""
FIRST_ROWS = 200
"""Newest runs in the full set that a stream begins with."""


class Reader:
    """Reads the database and the feeds; writes nothing."""

    def __init__(
        self,
        *,
        db: Database,
        board: Board,
        feeds: Feeds,
        reasons: Reasons,
        stores: Mapping[str, StorageControl],
        clock: AttentiveClock,
        page_bytes: int,
    ) -> None:
        self._db = db
        self._board = board
        self._feeds = feeds
        self._reasons = reasons
        self._stores = stores
        self._clock = clock
        self._page_bytes = page_bytes

    # ------------------------------------------------------------ rows

    async def get(self, run_id: str) -> JsonObject:
        """Raises: CodefyError ``run.not_found``."""
        async with self._db.read() as connection:
            row = (await connection.execute(shown_runs().where(runs.c.id == run_id))).one_or_none()
        if row is None:
            raise not_found(run_id)
        return self._row(row, long=True)

    async def list(
        self,
        statuses: Sequence[str],
        limit: int,
        offset: int,
        target: str | None,
        worker: str | None,
        q: str | None,
    ) -> JsonObject:
        """Newest first."""
        where = filters(statuses, target, worker, q)
        newest = shown_runs().where(*where).order_by(runs.c.queue_seq.desc()).limit(limit).offset(offset)
        async with self._db.read() as connection:
            total = await connection.scalar(select(func.count()).select_from(runs).where(*where))
            rows = (await connection.execute(newest)).all()
        found: list[Any] = [self._row(row, long=False) for row in rows]
        return {"runs": found, "total": total, "limit": limit, "offset": offset}

    def _row(self, row: Row[Any], *, long: bool) -> JsonObject:
        position = self._board.lines.position(row.id)
        return run_row(row, position=position, reason=self._reasons.of(row.id), long=long)

    # ------------------------------------------------------------ events

    async def events(self, run_id: str, cursor: int, limit: int, wait_s: float) -> JsonObject:
        """One page after a cursor; waits for one while the run goes on and there is nothing yet.

        Raises: CodefyError ``run.not_found``.
        """
        with self._feeds.following(run_id) as follower:
            status, found = await self._page(run_id, cursor, limit)
            if not found and status in ACTIVE and wait_s > 0:
                await self._wait(follower, min(wait_s, MAX_WAIT_S))
                status, found = await self._page(run_id, cursor, limit)
        return {
            "run_id": run_id,
            "status": status,
            "active": status in ACTIVE,
            "events": [event_json(event) for event in found],
            "cursor": found[-1].cursor if found else cursor,
        }

    async def _wait(self, follower: Follower, seconds: float) -> None:
        """Until something was committed, or the time is up."""
        news = asyncio.ensure_future(follower.wake.wait())
        over = asyncio.ensure_future(self._clock.delay(seconds))
        try:
            await asyncio.wait((news, over), return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
            over.cancel()

    async def _page(self, run_id: str, cursor: int, limit: int) -> tuple[str, Sequence[NewEvent]]:
        """Status and events, of one moment."""
        async with self._db.read() as connection:
            status = await connection.scalar(select(runs.c.status).where(runs.c.id == run_id))
            if status is None:
                raise not_found(run_id)
            rows = await connection.execute(page(run_id, cursor, limit))
            return str(status), self._fitting([event_of(row) for row in rows])

    def _fitting(self, events: Sequence[NewEvent]) -> Sequence[NewEvent]:
        """As many as an answer may hold, one at least."""
        size = 0
        for count, event in enumerate(events):
            size += len(event.text)
            if size > self._page_bytes and count:
                return events[:count]
        return events

    async def watch(self, run_id: str, cursor: int) -> AsyncIterator[JsonObject]:
        """Stored events after a cursor, then live ones, each once and in order; ends after the closing one.

        Raises: CodefyError ``run.not_found``.
        """
        with self._feeds.following(run_id) as follower:
            while not follower.gone:
                follower.begin()
                async for event in self._stored(run_id, cursor):
                    cursor = event.cursor
                    yield event_json(event)
                    if closes(event):
                        return
                if await self._is_over(run_id, cursor):
                    return
                async for event in self._live(follower, cursor):
                    cursor = event.cursor
                    yield event_json(event)
                    if closes(event):
                        return

    async def _stored(self, run_id: str, cursor: int) -> AsyncIterator[NewEvent]:
        while True:
            _, found = await self._page(run_id, cursor, PAGE)
            for event in found:
                cursor = event.cursor
                yield event
            if not found:
                return

    @staticmethod
    async def _live(follower: Follower, cursor: int) -> AsyncIterator[NewEvent]:
        """Until it lags, or the run is gone."""
        while follower.keeps_up():
            for event in follower.take():
                if event.cursor == cursor + 1:
                    cursor = event.cursor
                    yield event
                elif event.cursor > cursor:
                    return  # there is a page in between that this listener hasn't read
            if follower.keeps_up():
                await follower.wake.wait()

    async def _is_over(self, run_id: str, cursor: int) -> bool:
        """Nothing more will come after the cursor."""
        async with self._db.read() as connection:
            columns = select(runs.c.status, runs.c.last_cursor).where(runs.c.id == run_id)
            row = (await connection.execute(columns)).one_or_none()
        return row is None or (row.status not in ACTIVE and row.last_cursor <= cursor)

    async def changes(self) -> AsyncIterator[JsonObject]:
        """Rows of runs: the newest first, then each that changes. A run that was deleted is told as
        ``{id, deleted: true}``.
        """
        with self._feeds.watching() as watcher:
            first = await self.list((), FIRST_ROWS, 0, None, None, None)
            rows: Any = first["runs"]
            for row in rows:
                yield row
            while True:
                await watcher.wake.wait()
                for run_id in watcher.take():
                    yield await self._changed(run_id)
                await self._clock.delay(ROW_INTERVAL_S)

    async def _changed(self, run_id: str) -> JsonObject:
        try:
            return await self.get(run_id)
        except CodefyError:
            return {"id": run_id, "deleted": True}

    # ------------------------------------------------------------ metrics and artifacts

    async def metrics(self, run_id: str, name: str | None) -> JsonObject:
        """Raises: CodefyError ``run.not_found``."""
        async with self._db.read() as connection:
            await self._must_exist(connection, run_id)
            rows: list[Any] = [
                metric_json(row) for row in await connection.execute(metric_rows(run_id, name))
            ]
        names: list[Any] = list(dict.fromkeys(row["name"] for row in rows))
        return {"run_id": run_id, "names": names, "metrics": rows}

    async def artifacts(self, run_id: str, kind: str | None) -> Sequence[JsonObject]:
        """Raises: CodefyError ``run.not_found``."""
        async with self._db.read() as connection:
            await self._must_exist(connection, run_id)
            rows = (await connection.execute(artifact_rows(run_id, kind))).all()
        return [artifact_json(row, self._place(row)) for row in rows]

    async def artifact(self, run_id: str, artifact_id: str) -> JsonObject:
        """Raises: CodefyError ``artifact.not_found``."""
        row = await self._artifact(run_id, artifact_id)
        return artifact_json(row, self._place(row))

    def _place(self, row: Row[Any]) -> Place:
        store = self._stores.get(row.backend)
        if store is None or row.state != ArtifactState.STORED:
            return Place(path=row.path, downloadable=False)
        try:
            place = store.place(stored_object(row))
        except Exception:
            log.exception("storage backend %s failed to say where %s is", row.backend, row.artifact_id)
            return Place(path=None, downloadable=False)
        if row.label is not None:  # what its worker calls it means nothing here
            return place
        return replace(place, path=place.path or row.path)

    async def _artifact(self, run_id: str, artifact_id: str) -> Row[Any]:
        """The artifact with the name of its run's worker."""
        where = (artifacts.c.run_id == run_id, artifacts.c.artifact_id == artifact_id)
        found = (
            select(artifacts, runs.c.worker_name).join(runs, runs.c.id == artifacts.c.run_id).where(*where)
        )
        async with self._db.read() as connection:
            row = (await connection.execute(found)).one_or_none()
        if row is None:
            message = f"Run {run_id} has no artifact {artifact_id}."
            raise CodefyError(message, code="artifact.not_found")
        return row

    async def artifact_reading(
        self, run_id: str, artifact_id: str, span: tuple[int, int | None] | None
    ) -> tuple[JsonObject, Reading]:
        """An artifact's row, and its bytes through its backend.

        Raises: CodefyError ``artifact.not_found``, ``artifact.arriving``, ``artifact.not_here``; StorageProblem.
        """
        row = await self._artifact(run_id, artifact_id)
        store = self._stores.get(row.backend)
        if store is None or row.state != ArtifactState.STORED:
            arriving = row.state == ArtifactState.ARRIVING
            raise CodefyError(
                _where_it_is(row, is_on=store is not None),
                code="artifact.arriving" if arriving else "artifact.not_here",
            )
        reading = await store.read(stored_object(row), span)
        return artifact_json(row, self._place(row)), reading

    @staticmethod
    async def _must_exist(connection: Any, run_id: str) -> None:
        if await connection.scalar(select(runs.c.id).where(runs.c.id == run_id)) is None:
            raise not_found(run_id)


def _where_it_is(row: Row[Any], *, is_on: bool) -> str:
    """Of an artifact whose bytes aren't here. ``is_on``: its storage backend."""
    if row.state == ArtifactState.ARRIVING and not is_on:
        return (
            f"{row.name} is with the storage backend {row.backend}, which isn't on; see cdui plugin list. The server "
            "asks for the file once it is."
        )
    if row.state == ArtifactState.ARRIVING:
        return (
            f"{row.name} is with the storage backend {row.backend}, which couldn't confirm it yet. The server goes on "
            "asking; try again in a while."
        )
    if row.state == ArtifactState.STORED:
        return (
            f"{row.name} is held by the storage backend {row.backend}, which isn't on; see cdui plugin list."
        )
    if row.state == ArtifactState.MISSING:
        return f"{row.name} is gone."
    place = row.path or "where the run left it"
    return f"{row.name} isn't on this server; it is on worker {row.worker_name or '(unknown)'} at {place}."


def not_found(run_id: str) -> CodefyError:
    return CodefyError(f"There is no run {run_id}.", code="run.not_found")
