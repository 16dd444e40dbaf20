"""Which addressing styles may work, the likelier one first. Pure."""

import ipaddress
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from .models import Style

_HOST_LABEL = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")


def styles_to_try(endpoint_url: str, bucket: str, wanted: Style | None) -> Sequence[Style]:
    """``wanted`` alone when it is set. Else path style where the bucket's name can't stand in a host name: before an IP
    address, with a path behind the endpoint, and for names that no host or certificate bears.
    """
    if wanted is not None:
        return (wanted,)
    parts = urlsplit(endpoint_url)
    host = parts.hostname or ""
    if endpoint_url and (_is_address(host) or host == "localhost" or parts.path.strip("/")):
        return (Style.PATH,)
    if not _HOST_LABEL.fullmatch(bucket):  # with dots, a certificate for *.<endpoint> doesn't fit either
        return (Style.PATH,)
    if not endpoint_url or host.endswith(".amazonaws.com"):
        return (Style.VIRTUAL, Style.PATH)
    return (Style.PATH, Style.VIRTUAL)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
