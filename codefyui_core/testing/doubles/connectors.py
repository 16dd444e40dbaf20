"""Connectors that fail in one known way each. All claim ``http://`` addresses, before the fallback."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from codefyui_core.errors import LinkProblem
from codefyui_core.plugin import (
    AgentHost,
    Claim,
    Connector,
    ConnectorAgent,
    ConnectorControl,
    ControlLinkHost,
    Dial,
    Invitation,
    Target,
)


class _Claiming(ConnectorControl):
    def serves(self, address: str) -> Claim:
        return Claim.FITS if address.startswith("http://") else Claim.NO


class _ClaimingAgent(ConnectorAgent):
    def claims(self, target: Target) -> Claim:
        return Claim.FITS if target.url.startswith("http://") else Claim.NO

    def dial(self, target: Target) -> AbstractAsyncContextManager[Dial]:
        raise NotImplementedError


class _Double(Connector):
    def control(self, host: ControlLinkHost) -> ConnectorControl:
        return _Claiming()


class NeverAnswersConnector(_Double):
    """``dial`` and ``invite`` wait for ever; ``waiting`` is set once somebody waits."""

    name = "never_answers"
    title = "Never answers"

    def __init__(self) -> None:
        self.waiting = asyncio.Event()

    def control(self, host: ControlLinkHost) -> ConnectorControl:
        return _NeverInvites(self.waiting)

    def agent(self, host: AgentHost) -> ConnectorAgent:
        return _NeverDials(self.waiting)


class _NeverInvites(_Claiming):
    def __init__(self, waiting: asyncio.Event) -> None:
        self._waiting = waiting

    async def invite(self, address: str) -> Invitation:
        self._waiting.set()
        await asyncio.Event().wait()
        return Invitation()


class _NeverDials(_ClaimingAgent):
    def __init__(self, waiting: asyncio.Event) -> None:
        self._waiting = waiting

    def dial(self, target: Target) -> AbstractAsyncContextManager[Dial]:
        return self._wait()

    @asynccontextmanager
    async def _wait(self) -> AsyncIterator[Dial]:
        self._waiting.set()
        await asyncio.Event().wait()
        raise AssertionError("an event that nobody sets was set")
        yield


class FailingConnector(_Double):
    """Every dial fails with the given problem."""

    name = "failing"
    title = "Failing"

    def __init__(self, problem: LinkProblem) -> None:
        self._problem = problem

    def agent(self, host: AgentHost) -> ConnectorAgent:
        return _Raising(self._problem)


class CrashingConnector(_Double):
    """A plugin with a bug: dialing raises what no plugin should."""

    name = "crashing"
    title = "Crashing"

    def agent(self, host: AgentHost) -> ConnectorAgent:
        return _Raising(RuntimeError("a bug in the plugin"))


class _Raising(_ClaimingAgent):
    def __init__(self, error: Exception) -> None:
        self._error = error

    def dial(self, target: Target) -> AbstractAsyncContextManager[Dial]:
        raise self._error
