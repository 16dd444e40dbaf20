"""Live feeds: the events of one run, and the rows of runs and workers, as server-sent events."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web
from pydantic import BaseModel, Field

from codefyui_core.errors import CodefyError
from codefyui_core.plugin.http import Auth, Caller, Route

from .bodies import query_of

if TYPE_CHECKING:
    from codefyui_core.control.plane import ControlPlane
    from codefyui_core.control.runs.service import RunService

BEAT_S = 15.0
TOPICS = ("runs", "workers")


class StreamQuery(BaseModel):
    """Which rows to follow."""

    topics: str = Field("runs,workers", max_length=64)


def frame(event: str, data: Any, *, cursor: int | None = None) -> bytes:
    """One server-sent event (HTML standard, section 9.2)."""
    head = b"" if cursor is None else b"id: %d\n" % cursor
    return head + b"event: " + event.encode() + b"\ndata: " + orjson.dumps(data) + b"\n\n"


async def event_stream(
    request: web.Request, runs: "RunService", run_id: str, cursor: int
) -> web.StreamResponse:
    """Stored events after the cursor, then live ones, then ``closed``. 204 when nothing more will come."""
    start = last_event_id(request, cursor)
    row: dict[str, Any] = await runs.get(run_id)
    if not row["active"] and start >= row["last_cursor"]:
        return web.Response(status=204)
    response = await _open(request)

    async def frames() -> AsyncIterator[bytes]:
        async for event in runs.watch(run_id, start):
            yield frame(str(event["type"]), event, cursor=int(str(event["cursor"])))
        with suppress(CodefyError):
            yield frame("closed", {"status": (await runs.get(run_id))["status"]})

    await _send(response, frames())
    return response


def last_event_id(request: web.Request, cursor: int) -> int:
    """Where a browser that reconnects left off; the query's cursor otherwise."""
    given = request.headers.get("Last-Event-ID", "")
    return int(given) if given.isdecimal() and len(given) < 19 else cursor


def routes(plane: "ControlPlane") -> list[Route]:
    async def stream(request: web.Request, caller: Caller) -> web.StreamResponse:
        wanted = [topic for topic in query_of(request, StreamQuery).topics.split(",") if topic]
        unknown = sorted(set(wanted) - set(TOPICS))
        if unknown or not wanted:
            raise CodefyError(
                f"topics are {' and '.join(TOPICS)}, separated by commas.", code="request.invalid"
            )
        response = await _open(request)
        await _send(response, _rows(plane, wanted))
        return response

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


async def _rows(plane: "ControlPlane", topics: list[str]) -> AsyncIterator[bytes]:
    """One task a topic feeds one bounded queue, so that a slow reader slows nobody else."""
    queue: asyncio.Queue[bytes] = asyncio.Queue(maxsize=256)

    async def feed(event: str, rows: AsyncIterator[Any]) -> None:
        async for row in rows:
            await queue.put(frame(event, row))

    sources = {"runs": ("run", plane.runs.changes), "workers": ("worker", plane.workers.changes)}
    tasks = [asyncio.create_task(feed(sources[topic][0], sources[topic][1]())) for topic in topics]
    try:
        while True:
            yield await queue.get()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _open(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",  # nginx would hold events back
        }
    )
    await response.prepare(request)
    return response


async def _send(response: web.StreamResponse, frames: AsyncIterator[bytes]) -> None:
    """Frames as they come; a comment when nothing came for a while, so that proxies keep the line."""
    pending: asyncio.Future[bytes] | None = None
    try:
        while True:
            pending = pending or asyncio.ensure_future(anext(frames))
            done, _ = await asyncio.wait({pending}, timeout=BEAT_S)
            if not done:
                await response.write(b": beat\n\n")
                continue
            try:
                data = pending.result()
            except StopAsyncIteration:
                return
            pending = None
            await response.write(data)
    except ConnectionError:
        return
    finally:
        if pending is not None and not pending.done():
            pending.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration):
                await pending
        if hasattr(frames, "aclose"):
            await frames.aclose()
