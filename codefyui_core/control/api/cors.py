"""Lets the listed development servers call the API from a browser (Fetch standard, CORS protocol)."""

from collections.abc import Collection
from typing import Any

from aiohttp import web

ALLOWED_HEADERS = "Content-Type, X-CodefyUI-Token, Last-Event-ID, X-Request-Id"
ALLOWED_METHODS = "GET, POST, PUT, PATCH, DELETE, OPTIONS"


def cors_middleware(origins: Collection[str]) -> Any:
    """Nothing happens for requests without an Origin that is listed."""
    known = frozenset(origins)

    @web.middleware
    async def middleware(request: web.Request, handler: Any) -> web.StreamResponse:
        origin = request.headers.get("Origin", "")
        if origin not in known:
            response: web.StreamResponse = await handler(request)
            return response
        if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
            return _allow(web.Response(status=204), origin)
        response = await handler(request)
        return response if response.prepared else _allow(response, origin)

    return middleware


def _allow(response: web.StreamResponse, origin: str) -> web.StreamResponse:
    response.headers["Access-Control-Allow-Origin"] = origin
    response.headers["Access-Control-Allow-Headers"] = ALLOWED_HEADERS
    response.headers["Access-Control-Allow-Methods"] = ALLOWED_METHODS
    response.headers.add("Vary", "Origin")
    return response
