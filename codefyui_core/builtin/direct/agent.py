"""Agent half of the direct connector."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import aiohttp

from codefyui_core.plugin import (
    Claim,
    ConnectorAgent,
    Dial,
    LinkProblem,
    Moment,
    Purpose,
    Target,
    Trust,
    TrustKind,
    UsageProblem,
    causes_of,
    explain_dial,
)

from .address import Address, parse
from .resolver import RememberingResolver


class DirectAgent(ConnectorAgent):
    """Dials by aiohttp's own connector. Certificates are checked by the machine's authorities."""

    def __init__(self) -> None:
        self._place = "the control plane"

    def claims(self, target: Target) -> Claim:
        return Claim.NO if parse(target.url) is None else Claim.FALLBACK

    def dial(self, target: Target) -> AbstractAsyncContextManager[Dial]:
        address = parse(target.url)
        if address is None:
            raise UsageProblem(f"{target.url}: only http:// and https:// addresses can be dialed directly")
        self._place = address.place
        return _dial(address)

    async def diagnose(self, error: BaseException, moment: Moment) -> LinkProblem:
        problem = _diagnose(error, self._place)
        starting = moment.purpose is Purpose.ENROLL and not moment.accepted_before
        if problem.code == "link.untrusted" and starting:
            problem.exit_code = 1
        return problem


@asynccontextmanager
async def _dial(address: Address) -> AsyncIterator[Dial]:
    resolver = RememberingResolver()
    # aiohttp's own context has the authorities of its import: one that was installed since would not count.
    tls = await asyncio.to_thread(ssl.create_default_context) if address.encrypted else True
    # No limit: the session's socket and every transfer go through it, and each has bounds of its own.
    connector = aiohttp.TCPConnector(limit=0, resolver=resolver, ssl=tls)

    def trust() -> Trust:
        if address.encrypted:
            return Trust(kind=TrustKind.CA)
        local = address.is_loopback or resolver.only_loopback(address.host)
        return Trust(kind=TrustKind.LOCAL if local else TrustKind.CLEAR)

    try:
        yield Dial(base_url=address.base_url, connector=connector, trust=trust)
    finally:
        await connector.close()


def _diagnose(error: BaseException, place: str) -> LinkProblem:
    for cause in causes_of(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = getattr(cause, "verify_message", "") or cause
            return LinkProblem(
                f"{place}: its certificate is not accepted ({reason}); "
                f"install the authority that signed it, or pin it with codefyui-connect-tls",
                code="link.untrusted",
            )
    return explain_dial(error, place)
