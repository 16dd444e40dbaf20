"""Requests of plugins to the control plane."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from codefyui_core.agent.http import AgentHttp, Way
from codefyui_core.errors import Busy, LinkProblem
from codefyui_core.plugin.connector import Purpose


async def unexplained(error: BaseException, purpose: Purpose) -> LinkProblem:
    return LinkProblem(f"{purpose}: {type(error).__name__}; look at the proxy")


BODY = bytes(range(256)) * 40_000


@pytest.fixture
async def agent_http() -> AsyncIterator[AgentHttp]:
    async def send(request: web.Request) -> web.Response:
        return web.Response(body=BODY)

    application = web.Application()
    application.router.add_get("/file", send)
    async with TestServer(application) as server, aiohttp.ClientSession() as session:
        url = str(server.make_url("")).rstrip("/")
        way = Way(http=session, base_url=url, headers={}, diagnose=unexplained)
        yield AgentHttp(lambda: way)


async def test_a_large_body_comes_in_large_pieces(agent_http: AgentHttp) -> None:
    """What is left in the socket while nobody reads comes at once."""
    sizes = []
    async with agent_http.request("GET", "/file") as response, asyncio.timeout(20):
        async for piece, _ in response.content.iter_chunks():
            sizes.append(len(piece))
    assert sum(sizes) == len(BODY)
    assert max(sizes) > 256 * 1024


async def test_a_connection_that_cannot_be_made_is_explained_by_the_connector() -> None:
    async with aiohttp.ClientSession() as session:
        way = Way(http=session, base_url="http://127.0.0.1:9", headers={}, diagnose=unexplained)
        with pytest.raises(Busy, match=r"^transfer: ClientConnectorError; look at the proxy$"):
            async with AgentHttp(lambda: way).request("GET", "/file"):
                pass
