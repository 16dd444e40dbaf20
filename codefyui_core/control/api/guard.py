"""Which Host names this server answers to. Outermost, over pages, sockets and the API alike."""

import ipaddress
from collections.abc import Collection

import psutil

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})


def split_host(host: str) -> tuple[str, str | None]:
    """``name:port`` -> name and port; IPv6 addresses lose their brackets."""
    if host.startswith("["):
        name, _, rest = host[1:].partition("]")
        return name, rest[1:] if rest.startswith(":") else None
    name, colon, port = host.rpartition(":")
    if not colon or ":" in name:
        return host, None
    return name, port


def own_addresses() -> frozenset[str]:
    """The addresses of this machine's interfaces, as a Host header writes them."""
    found = set()
    for addresses in psutil.net_if_addrs().values():
        for entry in addresses:
            text = entry.address.partition("%")[0]
            try:
                found.add(str(ipaddress.ip_address(text)))
            except ValueError:
                continue  # a hardware address
    return frozenset(found)


class HostGuard:
    """Decides by the Host header alone; ``421`` for what it doesn't know."""

    def __init__(self, bound: str, port: int, extra: Collection[str]) -> None:
        self.port = port
        self._extra = frozenset(host.lower() for host in extra)
        wildcard = bound in {"0.0.0.0", "::", ""}
        self._own = own_addresses() if wildcard else frozenset({bound.lower()})

    def allows(self, host: str) -> bool:
        """Loopback names with any port (a forwarded one differs), own addresses with this server's port or
        none, and what the setting lists exactly.
        """
        lowered = host.lower()
        if lowered in self._extra:
            return True
        name, port = split_host(lowered)
        if name in LOOPBACK_NAMES:
            return port is None or port.isdigit()
        return name in self._own and port in {None, str(self.port)}

    def allows_origin(self, origin: str) -> bool:
        """The Origin of a browser's socket must be this server's, too."""
        scheme, separator, host = origin.partition("://")
        return bool(separator) and scheme in {"http", "https"} and self.allows(host)
