"""The page of ``codefyui_connectors``."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from codefyui_core.loading import Registry
from codefyui_core.plugin import Claim, TrustKind
from codefyui_core.testing.hosts import AgentDouble, ControlLinkDouble
from codefyui_core.testing.suites.connector import session_of, target_of


@pytest.fixture
async def socket(tmp_path: Path) -> AsyncIterator[Path]:
    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(text="here")

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "s")).start()
    yield tmp_path / "s"
    await runner.cleanup()


async def test_the_documented_connector_is_loaded_and_dials(
    documented: Callable[[str], Registry], socket: Path, tmp_path: Path
) -> None:
    connector = documented("codefyui_connectors").connectors["unix"]
    target = target_of(f"unix:{socket}", {}, tmp_path)
    assert connector.control(ControlLinkDouble(root=tmp_path)).serves(target.url) is Claim.FITS
    agent = connector.agent(AgentDouble(root=tmp_path))
    assert agent.claims(target) is Claim.FITS
    async with agent.dial(target) as dial, session_of(dial) as session:
        assert await _text(session, dial.base_url) == "here"
        assert dial.trust().kind is TrustKind.LOCAL


async def _text(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url) as answer:
        return await answer.text()
