"""Files to people: ranges, honest names, nothing that a browser would run."""

import mimetypes
from pathlib import Path
from urllib.parse import quote

from aiohttp import web


def disposition(name: str) -> str:
    """``Content-Disposition`` for a name with any characters (RFC 6266, RFC 8187)."""
    ascii_name = "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else "_" for c in name)
    return f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(name, safe='')}"


async def send_file(request: web.Request, path: Path, name: str) -> web.StreamResponse:
    """The file as a download; aiohttp answers ranges and conditions."""
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return web.FileResponse(
        path,
        headers={
            "Content-Disposition": disposition(name),
            "Content-Type": kind,
            "X-Content-Type-Options": "nosniff",
        },
    )
