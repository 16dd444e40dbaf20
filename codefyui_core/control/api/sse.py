"""Server-sent events (HTML standard, section 9.2): frames out of sources, beats in between, an orderly end."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from aiohttp import web

from codefyui_core.control.db.outages import log_failure

from .answers import json_bytes

BEAT_S = 15.0
"""Proxies cut lines that are silent for a minute."""
WAITING = 256
"""Frames that wait for a slow reader; then its sources wait, too."""

log = logging.getLogger(__name__)

Frames = AsyncGenerator[bytes]


def frame(event: str, data: Any, *, cursor: int | None = None) -> bytes:
    """One event."""
    head = b"" if cursor is None else b"id: %d\n" % cursor
    return head + b"event: " + event.encode() + b"\ndata: " + json_bytes(data) + b"\n\n"


def last_event_id(request: web.Request, cursor: int) -> int:
    """Where a browser that reconnects left off; the query's cursor otherwise."""
    given = request.headers.get("Last-Event-ID", "")
    return int(given) if given.isascii() and given.isdecimal() and len(given) < 19 else cursor


async def send_frames(
    request: web.Request, sources: Sequence[Frames], over: asyncio.Event
) -> web.StreamResponse:
    """Answer with the frames of all sources, until one of them ends, ``over`` is set or the reader is gone."""
    response = web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",  # nginx would hold events back
        }
    )
    await response.prepare(request)
    queue: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=WAITING)
    tasks = [asyncio.create_task(_fill(queue, source)) for source in sources]
    tasks.append(asyncio.create_task(_end(queue, over)))
    try:
        await _drain(queue, response)
    except ConnectionError:
        pass  # the reader left
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return response


async def _fill(queue: "asyncio.Queue[bytes | None]", source: Frames) -> None:
    try:
        async with aclosing(source) as frames:
            async for data in frames:
                await queue.put(data)
    except Exception as error:
        log_failure(log, error, "a live feed failed; its readers connect again")
    await queue.put(None)


async def _end(queue: "asyncio.Queue[bytes | None]", over: asyncio.Event) -> None:
    await over.wait()
    await queue.put(None)


async def _drain(queue: "asyncio.Queue[bytes | None]", response: web.StreamResponse) -> None:
    """Until the first None. What waits is written together."""
    while True:
        try:
            async with asyncio.timeout(BEAT_S):
                waiting = [await queue.get()]
        except TimeoutError:
            await response.write(b": beat\n\n")
            continue
        while waiting[-1] is not None and not queue.empty() and len(waiting) < WAITING:
            waiting.append(queue.get_nowait())
        if data := b"".join(part for part in waiting if part is not None):
            await response.write(data)
        if waiting[-1] is None:
            return
