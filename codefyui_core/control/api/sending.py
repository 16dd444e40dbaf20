"""Files to people: ranges, honest names, nothing that a browser would run."""

import asyncio
import mimetypes
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from aiohttp import web
from multidict import CIMultiDict

from codefyui_core.errors import CodefyError
from codefyui_core.files import SafeFolder
from codefyui_core.plugin.storage import Stream

from .zipping import zipped

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
    """A file's own bytes: aiohttp would send ``x.gz`` beside it for ``x``, and a range to whom has another file's
    beginning.
    """

    async def prepare(self, request: web.BaseRequest) -> Any:
        if self.prepared:
            return await web.StreamResponse.prepare(self, request)
        headers = CIMultiDict(request.headers)
        headers.popall("Accept-Encoding", None)
        if not await asyncio.to_thread(_has_its_beginning, headers, self._path):
            headers.popall("Range", None)
        return await super().prepare(request.clone(headers=headers))


def _has_its_beginning(headers: CIMultiDict[str], path: Path) -> bool:
    """``If-Range`` with a tag; a date is for aiohttp."""
    tag = headers.get("If-Range", "")
    if not tag.startswith(('"', "W/")):
        return True
    found = path.stat()
    return tag == f'"{found.st_mtime_ns:x}-{found.st_size:x}"'


async def send_open(request: web.Request, file: BinaryIO, path: Path, name: str) -> web.StreamResponse:
    """An open file as a download; aiohttp answers ranges and conditions.

    It is sent through its handle where the system lets a handle be named: what lies at ``path`` by now may be
    something else.
    """
    held = Path(f"/proc/self/fd/{file.fileno()}")
    response = _ItselfAlone(held if held.exists() else path, headers=download_headers(name))
    await response.prepare(request)
    await response.write_eof()
    return response


async def send_file(request: web.Request, path: Path, name: str) -> web.StreamResponse:
    """The file as a download, a folder as a zip.

    Raises: CodefyError ``artifact.not_here`` when nothing is there; BadName for a link.
    """
    if await asyncio.to_thread(path.is_dir):
        return await send_chunks(request, zipped(path), name=f"{name}.zip")
    try:
        file = await asyncio.to_thread(_open, path)
    except FileNotFoundError:
        raise CodefyError(f"{name} is gone from {path}.", code="artifact.not_here") from None
    with file:
        return await send_open(request, file, path, name)


def _open(path: Path) -> BinaryIO:
    with SafeFolder(path.parent) as folder:
        return folder.read(path.name)


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
    request: web.Request,
    stream: Stream,
    *,
    name: str,
    span: Span | None,
    whole: int | None,
    tag: str | None = None,
) -> web.StreamResponse:
    """Bytes from elsewhere, as they come. ``whole`` is the size of the file, ``tag`` names its content.

    Raises: HTTPRequestRangeNotSatisfiable.
    """
    async with _closing(stream.chunks) as chunks:
        if span is not None and whole is not None and span[0] >= whole:
            raise web.HTTPRequestRangeNotSatisfiable(headers={"Content-Range": f"bytes */{whole}"})
        headers = {
            **download_headers(name),
            "Content-Length": str(stream.size_bytes),
            "Accept-Ranges": "bytes",
        }
        part = _part(span, whole, stream.size_bytes)
        if part is not None:
            headers["Content-Range"] = part
        if tag is not None:
            headers["ETag"] = tag
        response = web.StreamResponse(status=200 if part is None else 206, headers=headers)
        await response.prepare(request)
        async for chunk in chunks:
            await response.write(chunk)
    return response


async def send_chunks(request: web.Request, chunks: Generator[bytes], *, name: str) -> web.StreamResponse:
    """What a generator makes in a thread, of a length that nobody knows."""
    response = web.StreamResponse(headers=download_headers(name))
    step: asyncio.Future[bytes | None] | None = None
    try:
        await response.prepare(request)
        while True:
            step = asyncio.ensure_future(asyncio.to_thread(next, chunks, None))
            chunk = await asyncio.shield(step)
            if chunk is None:
                return response
            await response.write(chunk)
    finally:
        # Without an await: whoever left may have the handler cancelled at the first one.
        if step is None or step.done():
            chunks.close()
        else:
            step.add_done_callback(lambda _step: chunks.close())


def _part(span: Span | None, whole: int | None, size: int) -> str | None:
    """None when the backend sends everything all the same."""
    if span is None or whole is None or size != min(span[1] or whole, whole) - span[0]:
        return None
    return f"bytes {span[0]}-{span[0] + size - 1}/{whole}"


@asynccontextmanager
async def _closing(chunks: AsyncIterator[bytes]) -> AsyncIterator[AsyncIterator[bytes]]:
    """A source is closed at once, not when the collector comes by."""
    try:
        yield chunks
    finally:
        aclose = getattr(chunks, "aclose", None)
        if aclose is not None:
            await aclose()
