"""Where a connection comes from: its address, and whether it crossed a network in the clear."""

from dataclasses import dataclass
from ipaddress import ip_address

from aiohttp import web


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The other end of a request's socket."""

    address: str
    """For people; empty for a Unix socket."""
    loopback: bool
    encrypted: bool

    @property
    def in_the_clear(self) -> bool:
        """Unencrypted, and not from this machine's loopback."""
        return not self.encrypted and not self.loopback


def peer_of(request: web.Request) -> Peer:
    """By the scheme that the server was reached with and the socket's peer, never by a header. A Unix socket
    counts as loopback.
    """
    address = request.remote or ""
    return Peer(address=address, loopback=_is_loopback(address), encrypted=request.secure)


def _is_loopback(address: str) -> bool:
    if not address:
        return True
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)
