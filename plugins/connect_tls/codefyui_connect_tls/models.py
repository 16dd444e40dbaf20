"""What both halves read: ``https`` addresses, and the command that shows a fingerprint."""

import shlex
from dataclasses import dataclass
from urllib.parse import urlsplit

from codefyui_core.plugin import UsageProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a TLS proxy is."""

    host: str
    port: int
    base_url: str

    @property
    def place(self) -> str:
        """Host and port for messages."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(text: str) -> Address | None:
    """None for another scheme than https.

    Raises: UsageProblem for an address that can't be dialed.
    """
    try:
        url = urlsplit(text.strip())
        scheme, host, port = url.scheme.lower(), url.hostname, url.port
    except ValueError as error:
        raise UsageProblem(f"{text}: not an address ({error})") from error
    if scheme != "https":
        return None
    if not host:
        raise UsageProblem(f"{text}: no host; an address looks like https://codefyui.example.com")
    if url.username or url.password or url.query or url.fragment:
        raise UsageProblem(f"{text}: give scheme, host and port alone, as in https://{host}")
    return Address(host=host, port=port or 443, base_url=text.strip().rstrip("/"))


def fingerprint_command(file: str = "/path/to/fullchain.pem") -> str:
    """For the proxy's host: prints what ``--ca-fingerprint`` takes, of the first certificate in a PEM file."""
    return (
        f"openssl x509 -in {shlex.quote(file)} -pubkey -noout | openssl pkey -pubin -outform der | "
        "openssl dgst -sha256 | awk '{print \"sha256:\" $NF}'"
    )
