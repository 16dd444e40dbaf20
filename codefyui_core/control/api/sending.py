"""Files to people: ranges, honest names, nothing that a browser would run."""

import mimetypes
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aiohttp import web
from multidict import CIMultiDict

from codefyui_core.errors import CodefyError
from codefyui_core.plugin.storage import Stream

Span = tuple[int, int | None]


def disposition(name: str) -> str:
    """``Content-Disposition`` for a name with any characters (RFC 6266, RFC 8187)."""
    ascii_name = "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else "_" for c in name)
    encoded = quote(name.encode("utf-8", "replace"), safe="")
    return f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{encoded}"


def download_headers(name: str) -> dict[str, str]:
    """Of every download."""
    return {
        "Content-Disposition": disposition(name),
        "Content-Type": mimetypes.guess_type(name)[0] or "application/octet-stream",
        "X-Content-Type-Options": "nosniff",
    }


class _ItselfAlone(web.FileResponse):
    """A file's own bytes: aiohttp would send ``x.gz`` beside it for ``x``."""

    async def prepare(self, request: web.BaseRequest) -> Any:
        headers = CIMultiDict(request.headers)
        headers.popall("Accept-Encoding", None)
        return await super().prepare(request.clone(headers=headers))


async def send_file(request: web.Request, path: Path, name: str) -> web.StreamResponse:
    """The file as a download; aiohttp answers ranges and conditions.

    Raises: CodefyError ``artifact.not_here`` for a folder.
    """
    if not path.is_file():
        raise CodefyError(f"{name} is a folder; it is at {path} on the server.", code="artifact.not_here")
    return _ItselfAlone(path, headers=download_headers(name))


def span_of(request: web.Request) -> Span | None:
    """The one range that is asked for, first byte and one past the last; None for the whole, and for the forms
    that a server may ignore (RFC 9110, section 14.2).
    """
    try:
        asked = request.http_range
    except ValueError:
        return None
    first = asked.start
    return None if first is None or first < 0 else (first, asked.stop)


async def send_stream(
    request: web.Request, stream: Stream, *, name: str, span: Span | None, whole: int | None
) -> web.StreamResponse:
    """Bytes from elsewhere, as they come. ``whole`` is the size of the file.

    Raises: HTTPRequestRangeNotSatisfiable.
    """
    if span is not None and whole is not None and span[0] >= whole:
        raise web.HTTPRequestRangeNotSatisfiable(headers={"Content-Range": f"bytes */{whole}"})
    headers = {**download_headers(name), "Content-Length": str(stream.size_bytes), "Accept-Ranges": "bytes"}
    part = _part(span, whole, stream.size_bytes)
    if part is not None:
        headers["Content-Range"] = part
    response = web.StreamResponse(status=200 if part is None else 206, headers=headers)
    async with aclosing(_closable(stream.chunks)) as chunks:
        await response.prepare(request)
        async for chunk in chunks:
            await response.write(chunk)
    return response


def _part(span: Span | None, whole: int | None, size: int) -> str | None:
    """None when the backend sends everything all the same."""
    if span is None or whole is None or size != min(span[1] or whole, whole) - span[0]:
        return None
    return f"bytes {span[0]}-{span[0] + size - 1}/{whole}"


async def _closable(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """A generator is closed at once, not when the collector comes by."""
    try:
        async for chunk in chunks:
            yield chunk
    finally:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()
