"""What the errors of a failed connection mean, for connectors that dial over TCP."""

import socket
import ssl

from ..errors import LinkProblem


def causes_of(error: BaseException) -> tuple[BaseException, ...]:
    """The error and what is below it, outermost first, without aiohttp's own: those wrap what the system or TLS
    said, some of it without its attributes.
    """
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in found:
        found.append(current)
        current = getattr(current, "os_error", None) or current.__cause__ or current.__context__
    return tuple(one for one in found if type(one).__module__.partition(".")[0] != "aiohttp")


def explain_dial(error: BaseException, place: str) -> LinkProblem:
    """In words, to be retried. ``place`` is the host and port that was dialed. What a refused certificate means is
    the connector's own to say.
    """
    for cause in causes_of(error):
        if isinstance(cause, ssl.SSLError):
            reason = getattr(cause, "reason", "") or cause
            return LinkProblem(f"{place}: no TLS connection ({reason}); is it an http:// address?")
        if isinstance(cause, socket.gaierror):
            return LinkProblem(f"{place}: the name can't be resolved ({cause.strerror or cause})")
        if isinstance(cause, ConnectionRefusedError):
            return LinkProblem(f"{place}: connection refused; is the control plane running and reachable?")
        if isinstance(cause, TimeoutError):
            return LinkProblem(f"{place}: no answer in time; is a firewall in the way?")
    return LinkProblem(f"{place}: {str(error) or type(error).__name__}")
