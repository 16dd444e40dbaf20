"""A server on loopback that notes its requests and whose certificate can be changed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from cdui_develop.certificates import Issued, server_context
from codefyui_connect_tls.agent import TlsAgent
from codefyui_core.testing.hosts import AgentDouble


class Proxy:
    """``https://127.0.0.1:<port>``, which answers everything with 200."""

    def __init__(self, folder: Path) -> None:
        self.requests: list[tuple[str, bytes]] = []
        self._folder = folder
        self._context = server_context()
        self._runner = web.ServerRunner(web.Server(self._note))

    def present(self, issued: Issued) -> None:
        """New connections get this certificate; each carries one request."""
        issued.serve_by(self._context, self._folder)

    async def start(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._context).start()

    @property
    def port(self) -> int:
        return int(self._runner.addresses[0][1])

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    async def _note(self, request: web.BaseRequest) -> web.Response:
        self.requests.append((request.path, await request.read()))
        answer = web.Response()
        answer.force_close()
        return answer

    async def aclose(self) -> None:
        await self._runner.cleanup()


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[Proxy]:
    made = Proxy(tmp_path)
    await made.start()
    yield made
    await made.aclose()


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[TlsAgent]:
    host = AgentDouble(root=tmp_path / "agent", name="tls")
    yield TlsAgent(host)
    await host.aclose()
