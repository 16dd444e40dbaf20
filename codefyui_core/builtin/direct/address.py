"""Addresses as both halves read them."""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from codefyui_core.plugin import UsageProblem

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a control plane is."""

    scheme: str
    host: str
    port: int
    base_url: str

    @property
    def encrypted(self) -> bool:
        return self.scheme == "https"

    @property
    def place(self) -> str:
        """Host and port for messages."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)


def parse(text: str) -> Address | None:
    """None for another scheme than http and https.

    Raises: UsageProblem for an address that can't be dialed.
    """
    try:
        url = urlsplit(text.strip())
        scheme, host, port = url.scheme.lower(), url.hostname, url.port
    except ValueError as error:
        raise UsageProblem(f"{text}: not an address ({error})") from error
    if scheme not in _PORTS:
        return None
    if not host:
        raise UsageProblem(f"{text}: no host; an address looks like http://192.168.1.5:8000")
    if url.username or url.password or url.query or url.fragment:
        raise UsageProblem(f"{text}: give scheme, host and port alone, as in {scheme}://{host}")
    return Address(scheme=scheme, host=host, port=port or _PORTS[scheme], base_url=text.strip().rstrip("/"))


def is_loopback(host: str) -> bool:
    """An address of this machine's loopback, or a name that can't mean another (RFC 6761, 6.3)."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
