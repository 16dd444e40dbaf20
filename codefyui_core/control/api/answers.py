"""JSON answers."""

from typing import Any

import orjson
from aiohttp import web

from codefyui_core.graph import json_text


def json_bytes(body: Any) -> bytes:
    """UTF-8 JSON. orjson writes null for NaN and refuses integers over 64 bits, which graphs may hold."""
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError:
        return json_text.dumps(body).encode("utf-8", "backslashreplace")


def json_response(body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """The whole answer."""
    return web.Response(
        body=json_bytes(body), status=status, headers=headers, content_type="application/json"
    )
