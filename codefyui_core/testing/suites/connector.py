"""The suite for connectors."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from codefyui_core.errors import LinkProblem
from codefyui_core.loading import answers
from codefyui_core.plugin import (
    AgentEvent,
    AgentEventKind,
    Claim,
    Connector,
    ConnectorAgent,
    ConnectorControl,
    Dial,
    Invitation,
    JsonObject,
    Moment,
    Purpose,
    Target,
    Trust,
)
from codefyui_core.testing.hosts import AgentDouble, ControlLinkDouble

DEADLINE_S = 30


class ConnectorSuite:
    """Override ``connector``, and for another way than TCP on loopback ``url`` and ``dead_url`` as well."""

    foreign_address = "gopher://example.invalid:70"
    """An address that the connector must leave to others."""

    @pytest.fixture
    def connector(self) -> Connector:
        """The descriptor under test."""
        raise NotImplementedError("override the fixture `connector`")

    @pytest.fixture
    def options(self) -> JsonObject:
        """The connector's own options of ``cdui agent start``."""
        return {}

    @pytest.fixture
    async def url(self) -> AsyncIterator[str]:
        """The address of a server that ``serve`` runs, as an agent is given it."""
        async with serving() as address:
            yield address

    @pytest.fixture
    def dead_url(self) -> str:
        """An address of the same kind where nothing listens."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            return f"http://127.0.0.1:{free.getsockname()[1]}"

    @pytest.fixture
    async def control(self, connector: Connector, tmp_path: Path) -> AsyncIterator[ConnectorControl]:
        host = ControlLinkDouble(root=tmp_path / "control", name=connector.name)
        half = connector.control(host)
        await half.start()
        yield half
        await asyncio.wait_for(half.aclose(), 5)
        await host.aclose()

    @pytest.fixture
    async def agent(self, connector: Connector, tmp_path: Path) -> AsyncIterator[ConnectorAgent]:
        host = AgentDouble(root=tmp_path / "agent", name=connector.name)
        half = connector.agent(host)
        await half.start()
        yield half
        await asyncio.wait_for(half.aclose(), 5)
        await host.aclose()

    @pytest.fixture
    def target(self, url: str, options: JsonObject, tmp_path: Path) -> Target:
        return target_of(url, options, tmp_path)

    def test_the_descriptor_is_one_that_the_loader_takes(self, connector: Connector) -> None:
        assert answers.connectors([connector]) == (connector,)

    def test_its_options_are_click_options(self, connector: Connector) -> None:
        import click

        assert all(isinstance(option, click.Option) for option in connector.agent_options())

    async def test_the_agent_half_claims_the_address(self, agent: ConnectorAgent, target: Target) -> None:
        assert agent.claims(target) in {Claim.FALLBACK, Claim.FITS}

    async def test_both_halves_leave_a_foreign_address_to_others(
        self, control: ConnectorControl, agent: ConnectorAgent, tmp_path: Path
    ) -> None:
        assert control.serves(self.foreign_address) is Claim.NO
        assert agent.claims(target_of(self.foreign_address, {}, tmp_path)) is Claim.NO

    async def test_an_invitation_comes_in_time_and_its_options_are_words(
        self, control: ConnectorControl, url: str
    ) -> None:
        invitation = await asyncio.wait_for(control.invite(url), 5)
        assert isinstance(invitation, Invitation)
        assert all(option.strip() for option in invitation.options)

    async def test_one_dial_carries_requests_and_a_websocket(
        self, agent: ConnectorAgent, target: Target
    ) -> None:
        async with asyncio.timeout(DEADLINE_S), agent.dial(target) as dial, session_of(dial) as session:
            assert await echoed(session, dial, b"x" * 100_000) == b"x" * 100_000
            async with session.ws_connect(f"{dial.base_url}/socket") as socket_:
                await socket_.send_str("here")
                assert await socket_.receive_str() == "here"

    async def test_trust_is_known_once_connected(self, agent: ConnectorAgent, target: Target) -> None:
        async with asyncio.timeout(DEADLINE_S), agent.dial(target) as dial, session_of(dial) as session:
            assert await echoed(session, dial, b"x") == b"x"
            assert isinstance(dial.trust(), Trust)

    async def test_leaving_the_dial_closes_its_connections(
        self, agent: ConnectorAgent, target: Target
    ) -> None:
        async with asyncio.timeout(DEADLINE_S), agent.dial(target) as dial:
            pass
        assert dial.connector.closed

    async def test_it_can_be_dialed_again_after_a_failure(
        self, agent: ConnectorAgent, target: Target
    ) -> None:
        with pytest.raises(ConnectionResetError):
            async with asyncio.timeout(DEADLINE_S), agent.dial(target):
                raise ConnectionResetError
        async with asyncio.timeout(DEADLINE_S), agent.dial(target) as dial, session_of(dial) as session:
            assert await echoed(session, dial, b"again") == b"again"

    async def test_a_cancelled_dial_closes_its_connections(
        self, agent: ConnectorAgent, target: Target
    ) -> None:
        entered: asyncio.Future[Dial] = asyncio.get_running_loop().create_future()

        async def hold() -> None:
            async with agent.dial(target) as dial:
                entered.set_result(dial)
                await asyncio.Event().wait()

        task = asyncio.create_task(hold())
        either: set[asyncio.Future[Any]] = {task, entered}
        await asyncio.wait(either, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        dial = entered.result()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert dial.connector.closed

    @pytest.mark.parametrize("purpose", list(Purpose))
    async def test_a_dead_address_is_explained_and_retried(
        self,
        agent: ConnectorAgent,
        dead_url: str,
        options: JsonObject,
        purpose: Purpose,
        tmp_path: Path,
    ) -> None:
        moment = Moment(purpose=purpose, accepted_before=True, failures=1)
        try:
            dialed = agent.dial(target_of(dead_url, options, tmp_path))
            async with asyncio.timeout(DEADLINE_S), dialed as dial, session_of(dial) as session:
                await echoed(session, dial, b"x")
            pytest.fail(f"something answers at {dead_url}")
        except LinkProblem as problem:
            found = problem
        except aiohttp.ClientError as error:
            found = await asyncio.wait_for(agent.diagnose(error, moment), 10)
        assert found.message
        assert found.exit_code is None

    async def test_an_unknown_failure_is_explained_too(self, agent: ConnectorAgent) -> None:
        moment = Moment(purpose=Purpose.SESSION, accepted_before=True, failures=3)
        problem = await asyncio.wait_for(agent.diagnose(RuntimeError(), moment), 10)
        assert isinstance(problem, LinkProblem)
        assert problem.message

    @pytest.mark.parametrize("kind", list(AgentEventKind))
    async def test_it_bears_every_event(self, agent: ConnectorAgent, kind: AgentEventKind) -> None:
        await agent.noticed(AgentEvent(kind=kind, detail="said by a test"))

    async def test_its_routes_have_shapes_that_the_server_takes(
        self, connector: Connector, control: ConnectorControl
    ) -> None:
        from codefyui_core.loading import check_routes

        check_routes((connector.name, route) for route in control.routes())


def target_of(url: str, options: JsonObject, folder: Path) -> Target:
    """What the agent was asked to reach, for the first time."""
    return Target(url=url, options=options, kept={}, credential_file=folder / "worker.token")


def session_of(dial: Dial) -> aiohttp.ClientSession:
    """As the agent makes it."""
    return aiohttp.ClientSession(connector=dial.connector, connector_owner=False, headers=dial.headers)


async def echoed(session: aiohttp.ClientSession, dial: Dial, data: bytes) -> bytes:
    """What the server behind ``url`` sends back."""
    async with session.post(f"{dial.base_url}/echo", data=data) as answer:
        return await answer.read()


class _Serving:
    """A small server on loopback that echoes: ``POST /echo`` and the WebSocket ``/socket``."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls

    async def __aenter__(self) -> str:
        application = web.Application()
        application.router.add_post("/echo", _echo)
        application.router.add_get("/socket", _socket)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls).start()
        host, port = self._runner.addresses[0][:2]
        return f"{'http' if self._tls is None else 'https'}://{host}:{port}"

    async def __aexit__(self, *exc: object) -> None:
        await self._runner.cleanup()


def serving(tls: ssl.SSLContext | None = None) -> _Serving:
    """A context that runs the server behind the fixture ``url`` and gives its address."""
    return _Serving(tls)


async def _echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read())


async def _socket(request: web.Request) -> web.WebSocketResponse:
    socket_ = web.WebSocketResponse()
    await socket_.prepare(request)
    async for message in socket_:
        await socket_.send_str(message.data)
    return socket_
