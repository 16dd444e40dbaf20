"""Control half of the TLS connector."""

import asyncio

from codefyui_core.plugin import Claim, ConnectorControl, ControlLinkHost, Invitation, Note, UsageProblem

from .cert_file import CertFile, Seen
from .models import fingerprint_command, parse
from .settings import TlsSettings

VARIABLE = "CODEFYUI_TLS_CERT_FILE"
WHY_PIN = (
    "When the worker's machine doesn't trust the authority that signed the proxy's certificate, or it is self-signed, "
    "run this on the proxy's host, with the certificate that it serves, and give what it prints with --ca-fingerprint."
)


class TlsControl(ConnectorControl):
    """Pins the key of the proxy's certificate in the command, when the certificate can be read here."""

    def __init__(self, host: ControlLinkHost) -> None:
        self._host = host
        self._file = CertFile()
        self._seen = Seen()

    async def start(self) -> None:
        await self._look()

    def condition(self) -> str:
        if self._seen.problem:
            return f"pins no key: {VARIABLE}: {self._seen.problem}"
        return f"pins the key {self._seen.fingerprint}" if self._seen.fingerprint else ""

    def serves(self, address: str) -> Claim:
        try:
            return Claim.NO if parse(address) is None else Claim.FITS
        except UsageProblem:
            return Claim.NO

    async def invite(self, address: str) -> Invitation:
        path, seen = await self._look()
        if seen.fingerprint:
            shown = Note(
                text=f"The command pins the key of the proxy's certificate ({path}). This shows its fingerprint on the "
                "proxy's host, to compare.",
                command=fingerprint_command(path),
                value=seen.fingerprint,
            )
            return Invitation(options=("--ca-fingerprint", seen.fingerprint), notes=(shown,))
        how = Note(text=WHY_PIN, command=fingerprint_command())
        if seen.problem:
            return Invitation(notes=(Note(text=f"The command pins no key: {VARIABLE}: {seen.problem}."), how))
        return Invitation(notes=(how,))

    async def _look(self) -> tuple[str, Seen]:
        """The path that is set, and what is there. A problem goes into the log when it is new."""
        path = self._host.settings(TlsSettings).tls_cert_file
        seen = await asyncio.to_thread(self._file.look, path) if path else Seen()
        if seen.problem and seen != self._seen:
            self._host.log.warning("commands for agents pin no key: %s: %s", VARIABLE, seen.problem)
        self._seen = seen
        return path, seen
