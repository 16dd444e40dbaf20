"""Requests of plugins to the control plane."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from codefyui_core.agent.http import AgentHttp, Way

BODY = bytes(range(256)) * 40_000


@pytest.fixture
async def agent_http() -> AsyncIterator[AgentHttp]:
    async def send(request: web.Request) -> web.Response:
        return web.Response(body=BODY)

    application = web.Application()
    application.router.add_get("/file", send)
    async with TestServer(application) as server, aiohttp.ClientSession() as session:
        way = Way(http=session, base_url=str(server.make_url("")).rstrip("/"), headers={})
        yield AgentHttp(lambda: way)


async def test_a_large_body_comes_in_large_pieces(agent_http: AgentHttp) -> None:
    """What is left in the socket while nobody reads comes at once."""
    sizes = []
    async with agent_http.request("GET", "/file") as response, asyncio.timeout(20):
        async for piece, _ in response.content.iter_chunks():
            sizes.append(len(piece))
    assert sum(sizes) == len(BODY)
    assert max(sizes) > 256 * 1024
