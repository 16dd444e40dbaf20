"""TLS handshakes of the agent: with pinned keys, with this machine's authorities, and to see what is presented.

What is checked is checked inside the handshake, so a connection that fails it never carries a byte of a request. The
leaf certificate is taken from the handshake itself, by a call that every Python has, so no other certificate that the
server sends along can match.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence

from .models import Address
from .spki import fingerprint_of

PRESENTED_WITHIN_S = 5.0


class PinMismatch(ssl.SSLCertVerificationError):
    """The server proved another key than the pinned ones. An error of TLS, so that asyncio ends the handshake."""

    def __init__(self, pins: Sequence[str], presented: str) -> None:
        super().__init__(
            1,
            f"the key of its certificate is not pinned: expected {' or '.join(pins)}, presented {presented}",
        )
        self.pins = tuple(pins)
        self.presented = presented


def pinned(pins: Sequence[str], matched: Callable[[str], None]) -> ssl.SSLContext:
    """Trusts these keys, whoever signed for them and for whatever name. ``matched`` is told which it was."""

    class Pinned(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            presented = _presented(self)
            if presented not in pins:
                raise PinMismatch(pins, presented)
            matched(presented)

    return _context(Pinned)


def checked(refused: Callable[[], None]) -> ssl.SSLContext:
    """As browsers do: this machine's authorities, and the name in the address. ``refused`` is told when they don't
    accept a certificate. Blocking: reads the authorities.
    """

    class Checked(ssl.SSLObject):
        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except ssl.SSLCertVerificationError:
                refused()
                raise

    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    context.sslobject_class = Checked
    return context


async def presented_at(address: Address) -> str | None:
    """The fingerprint of the key that is proved there now; None when nothing can be seen. Nothing is sent."""
    try:
        async with asyncio.timeout(PRESENTED_WITHIN_S):
            _, writer = await asyncio.open_connection(
                address.host, address.port, ssl=_context(ssl.SSLObject), server_hostname=address.host
            )
    except OSError:
        return None
    try:
        return _presented(writer.get_extra_info("ssl_object"))
    finally:
        writer.transport.abort()


def _context(objects: type[ssl.SSLObject]) -> ssl.SSLContext:
    """Checks nothing by itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    context.sslobject_class = objects
    return context


def _presented(connection: ssl.SSLObject) -> str:
    """Raises: SSLError for a server without a certificate."""
    leaf = connection.getpeercert(binary_form=True)
    try:
        return fingerprint_of(leaf or b"")
    except ValueError as error:
        raise ssl.SSLError(1, "the server presents no certificate that can be read") from error
