"""Live feeds: the events of one run, and the rows of runs and workers, as server-sent events."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aiohttp import web
from pydantic import BaseModel, Field

from codefyui_core.errors import CodefyError
from codefyui_core.plugin.http import Auth, Caller, Route

from .bodies import query_of
from .sse import Frames, frame, last_event_id, send_frames

if TYPE_CHECKING:
    from codefyui_core.control.plane import ControlPlane
    from codefyui_core.control.runs.service import RunService

TOPICS = ("runs", "workers")


class StreamQuery(BaseModel):
    """Which rows to follow."""

    topics: str = Field("runs,workers", max_length=64)
    """``runs``, ``workers`` or both, separated by a comma."""


async def event_stream(
    request: web.Request, runs: "RunService", run_id: str, cursor: int, over: asyncio.Event
) -> web.StreamResponse:
    """Stored events after the cursor, then live ones, then ``closed``. 204 when nothing more will come.

    Raises: CodefyError ``run.not_found``.
    """
    start = last_event_id(request, cursor)
    row: dict[str, Any] = await runs.get(run_id)
    if not row["active"] and start >= row["last_cursor"]:
        return web.Response(status=204)
    return await send_frames(request, [_events(runs, run_id, start)], over)


async def _events(runs: "RunService", run_id: str, start: int) -> Frames:
    with suppress(CodefyError):  # it was removed meanwhile
        async for event in runs.watch(run_id, start):
            yield frame(str(event["type"]), event, cursor=int(str(event["cursor"])))
        yield frame("closed", {"status": (await runs.get(run_id))["status"]})


def routes(plane: "ControlPlane") -> list[Route]:
    async def stream(request: web.Request, caller: Caller) -> web.StreamResponse:
        wanted = topics_of(query_of(request, StreamQuery).topics)
        sources = {"runs": ("run", plane.runs.changes), "workers": ("worker", plane.workers.changes)}
        feeds = [_rows(sources[topic][0], sources[topic][1]()) for topic in wanted]
        return await send_frames(request, feeds, plane.over)

    return [
        Route(
            method="GET",
            path="/api/stream",
            handler=stream,
            auth=Auth.OPEN,
            query=StreamQuery,
            answers="text/event-stream",
            summary="Rows of runs and workers, first all, then changes",
        )
    ]


def topics_of(text: str) -> list[str]:
    """Raises: CodefyError ``request.invalid`` for none, or one that there isn't."""
    wanted = list(dict.fromkeys(topic for topic in text.split(",") if topic))
    if not wanted or not set(wanted) <= set(TOPICS):
        raise CodefyError(f"topics are {' and '.join(TOPICS)}, separated by commas.", code="request.invalid")
    return wanted


async def _rows(event: str, rows: AsyncIterator[Any]) -> Frames:
    async for row in rows:
        yield frame(event, row)
