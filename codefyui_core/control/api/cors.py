"""Lets the listed development servers call the API from a browser (Fetch standard, CORS protocol)."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from aiohttp import web

ALLOWED_HEADERS = "Content-Type, X-CodefyUI-Token, Last-Event-ID, X-Request-Id"
ALLOWED_METHODS = "GET, POST, PUT, PATCH, DELETE, OPTIONS"


def preflight_middleware(origins: Collection[str]) -> Any:
    """Answers what browsers ask before they call from one of the origins."""
    known = frozenset(origins)

    @web.middleware
    async def middleware(request: web.Request, handler: Any) -> web.StreamResponse:
        asks = request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
        if asks and request.headers.get("Origin", "") in known:
            return web.Response(status=204)
        response: web.StreamResponse = await handler(request)
        return response

    return middleware


def allow_origins(origins: Collection[str]) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Signal ``on_response_prepare``, so that streams and errors have the headers, too."""
    known = frozenset(origins)

    async def allow(request: web.Request, response: web.StreamResponse) -> None:
        origin = request.headers.get("Origin", "")
        if origin not in known:
            return
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Allow-Headers"] = ALLOWED_HEADERS
        response.headers["Access-Control-Allow-Methods"] = ALLOWED_METHODS
        response.headers["Access-Control-Expose-Headers"] = "X-Request-Id, Content-Disposition, Retry-After"
        response.headers.add("Vary", "Origin")

    return allow
