"""A control half's routes over real HTTP, and the agent's side of them."""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web
from pydantic import JsonValue

from codefyui_core.errors import Busy, CodefyError, Refused, status_of
from codefyui_core.plugin import Caller, Route

_BUSY = frozenset({408, 429, 502, 503, 504})


@asynccontextmanager
async def served_routes(routes: Sequence[Route], caller: Caller) -> AsyncIterator["HttpDouble"]:
    """Serve the routes on a free loopback port, every request as ``caller``, whatever their ``auth`` says."""
    application = web.Application()
    for route in routes:
        limit = route.body_limit_bytes or 1 << 20
        application.router.add_route(route.method, route.path, _handler(route, caller, limit))
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        async with aiohttp.ClientSession(f"http://{host}:{port}") as session:
            yield HttpDouble(session)
    finally:
        await runner.cleanup()


def _handler(
    route: Route, caller: Caller, limit: int
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await route.handler(request.clone(client_max_size=limit), caller)
        except CodefyError as error:
            body = {"detail": error.message, "code": error.code, "request_id": "0" * 32}
            return web.json_response(body, status=status_of(error.code))

    return handle


class HttpDouble:
    """``ControlHttp`` over an ordinary client session."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    @asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        json: JsonValue = None,
        data: bytes | AsyncIterable[bytes] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        asked = self._session.request(
            method, path, headers=headers, params=params, json=json, data=data, allow_redirects=False
        )
        try:
            async with asked as response:
                await _raise_for(response)
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Busy(f"no connection: {error}") from error


async def _raise_for(response: aiohttp.ClientResponse) -> None:
    if response.status < 400:
        return
    if response.status in _BUSY:
        raise Busy(f"answered {response.status}")
    try:
        answer = await response.json()
        message, code = answer["detail"], answer["code"]
    except (aiohttp.ContentTypeError, ValueError, KeyError, TypeError):
        message, code = f"answered {response.status}", f"proxy.{response.status}"
    raise Refused(message, code=code)
