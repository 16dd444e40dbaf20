"""Agent half of the TLS connector."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import aiohttp

from codefyui_core.plugin import (
    AgentHost,
    Claim,
    ConnectorAgent,
    Dial,
    JsonObject,
    LinkProblem,
    Moment,
    Target,
    Trust,
    TrustKind,
    UsageProblem,
    causes_of,
    explain_dial,
)

from .diagnosis import mismatch, untrusted
from .handshakes import PinMismatch, checked, pinned, presented_at
from .models import Address, parse
from .pins import given_pins, kept_pins, to_keep


class TlsAgent(ConnectorAgent):
    """Trusts the pinned keys that were given, else those that are kept, else what this machine's authorities say."""

    def __init__(self, host: AgentHost) -> None:
        self._host = host
        self._address: Address | None = None
        self._told_of: tuple[str, ...] = ()
        """Damaged pins that the log has named."""

    def claims(self, target: Target) -> Claim:
        given_pins(target.options.get("ca_fingerprint"))
        return Claim.NO if parse(target.url) is None else Claim.FITS

    def dial(self, target: Target) -> AbstractAsyncContextManager[Dial]:
        address = parse(target.url)
        if address is None:
            raise UsageProblem(f"{target.url}: only https:// addresses are dialed over TLS")
        self._address = address
        given = given_pins(target.options.get("ca_fingerprint"))
        pins = given or self._kept(target)
        if pins:
            return self._pinned(address, pins)
        return self._checked(address, target.kept)

    def _kept(self, target: Target) -> tuple[str, ...]:
        kept = kept_pins(target.kept)
        if kept.damaged and kept.damaged != self._told_of:
            self._told_of = kept.damaged
            self._host.log.warning(
                "%s: the pin %s is no fingerprint and is ignored. Start the agent with --ca-fingerprint sha256:HEX to "
                "pin the server's key again.",
                target.credential_file,
                ", ".join(map(repr, kept.damaged)),
            )
        return kept.pins

    @asynccontextmanager
    async def _pinned(self, address: Address, pins: tuple[str, ...]) -> AsyncIterator[Dial]:
        proved: list[str] = []

        def trust() -> Trust:
            fingerprint = proved[-1] if proved else ""
            note = f"pin {pins.index(fingerprint) + 1} of {len(pins)}" if len(pins) > 1 and proved else ""
            return Trust(kind=TrustKind.PIN, fingerprint=fingerprint, note=note)

        connector = _connector(pinned(pins, proved.append))
        try:
            yield Dial(base_url=address.base_url, connector=connector, trust=trust, keep=to_keep(pins))
        finally:
            await connector.close()

    @asynccontextmanager
    async def _checked(self, address: Address, kept: JsonObject) -> AsyncIterator[Dial]:
        """``kept`` stays as it is: a damaged pin is for a person to put right."""

        async def reread() -> None:
            await asyncio.to_thread(context.load_default_certs)

        def refused() -> None:
            # The session may live on while a new authority is installed here, and files wait for new connections.
            self._host.tasks.start(reread(), name="authorities")

        context = await asyncio.to_thread(checked, refused)
        connector = _connector(context)
        try:
            yield Dial(
                base_url=address.base_url,
                connector=connector,
                trust=lambda: Trust(kind=TrustKind.CA),
                keep=kept,
            )
        finally:
            await connector.close()

    async def diagnose(self, error: BaseException, moment: Moment) -> LinkProblem:
        address = self._address
        if address is None:
            return await super().diagnose(error, moment)
        for cause in causes_of(error):
            if isinstance(cause, PinMismatch):
                return mismatch(address, cause, moment)
            if isinstance(cause, ssl.SSLCertVerificationError):
                return untrusted(address, cause, await presented_at(address), moment)
        return explain_dial(error, address.place)


def _connector(context: ssl.SSLContext) -> aiohttp.TCPConnector:
    # No limit: the session's socket and every transfer go through it, and each has bounds of its own.
    return aiohttp.TCPConnector(limit=0, ssl=context)
