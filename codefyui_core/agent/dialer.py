"""Which connector dials an address, and its dials."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from codefyui_core.errors import LinkProblem, UsageProblem
from codefyui_core.plugin.connector import (
    AgentEvent,
    AgentEventKind,
    Claim,
    ConnectorAgent,
    Dial,
    Moment,
    Purpose,
    Target,
)
from codefyui_core.plugin.values import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The connector that won an address."""

    name: str
    half: ConnectorAgent


def choose(
    halves: Mapping[str, ConnectorAgent], url: str, options: Mapping[str, JsonObject], target: Target
) -> Chosen:
    """The best claim. ``options`` are by connector: those of one that didn't win are a usage problem.

    Raises: UsageProblem.
    """
    claims = {
        name: half.claims(_with_options(target, options.get(name, {}))) for name, half in halves.items()
    }
    best = max(claims.values(), default=Claim.NO)
    winners = sorted(name for name, claim in claims.items() if claim is best)
    if best is Claim.NO:
        raise UsageProblem(f"No connector can dial {url}. An address looks like http://192.168.1.5:8000.")
    if len(winners) > 1:
        raise UsageProblem(f"{url} is claimed by the connectors {' and '.join(winners)}.")
    for name, given in options.items():
        if given and name != winners[0]:
            names = ", ".join(f"--{option.replace('_', '-')}" for option in given)
            raise UsageProblem(f"{names} doesn't fit {url}, which the connector {winners[0]} dials.")
    return Chosen(name=winners[0], half=halves[winners[0]])


def _with_options(target: Target, options: JsonObject) -> Target:
    return Target(url=target.url, options=options, kept=target.kept, credential_file=target.credential_file)


class Dialer:
    """Dials one address by one connector. ``url`` is asked at each dial, as a local server may have moved."""

    def __init__(
        self,
        chosen: Chosen,
        *,
        url: Callable[[], str],
        options: JsonObject,
        kept: Callable[[], JsonObject],
        credential_file: Path,
        log: logging.Logger,
    ) -> None:
        self.name = chosen.name
        self.half = chosen.half
        self.url = url
        self.accepted_before = False
        self.failures = 0
        self._options = options
        self._kept = kept
        self._file = credential_file
        self._log = log

    @asynccontextmanager
    async def dial(self) -> AsyncIterator[tuple[Dial, aiohttp.ClientSession]]:
        """A dial and a client over it.

        Raises: LinkProblem, and whatever a connection raises: hand it to ``diagnose``.
        """
        target = Target(url=self.url(), options=self._options, kept=self._kept(), credential_file=self._file)
        async with (
            self.half.dial(target) as dial,
            aiohttp.ClientSession(
                connector=dial.connector, connector_owner=False, headers=dict(dial.headers), trust_env=False
            ) as http,
        ):
            yield dial, http

    async def diagnose(self, error: BaseException, purpose: Purpose) -> LinkProblem:
        """What a failed connection means. Those of transfers don't count: they are beside a connection that holds."""
        self.failures += purpose is not Purpose.TRANSFER
        if isinstance(error, LinkProblem):
            return error
        moment = Moment(purpose=purpose, accepted_before=self.accepted_before, failures=self.failures)
        try:
            return await self.half.diagnose(error, moment)
        except Exception:
            self._log.exception("the connector %s failed to explain an error", self.name)
            return LinkProblem(f"{self.url()}: {str(error) or type(error).__name__}")

    def accepted(self) -> None:
        self.accepted_before = True
        self.failures = 0

    async def notice(self, kind: AgentEventKind, detail: str = "") -> None:
        """Tell the connector what happened."""
        try:
            await self.half.noticed(AgentEvent(kind=kind, detail=detail))
        except Exception:
            self._log.exception("the connector %s failed to pass an event on", self.name)
