"""Bodies of blocks: each stands behind its CRC-32C, so that a damaged one is found when it comes, and is all that goes
again. Pure.

The sender's other way to show that a file arrived as it was is SHA-256 over all of it, for fifteen times the processor
time: as much as reading and sending. The control plane hashes what it stores in any case.
"""

from collections.abc import Iterator

import google_crc32c

from codefyui_core.plugin import CodefyError

from .models import MIB

BLOCK_BYTES = MIB
"""Of those that are sent."""
HEAD_BYTES = 4
"""CRC-32C (RFC 3720, appendix B.4), the most significant byte first."""


class Damaged(CodefyError):
    """A block isn't what its checksum says."""

    default_code = "upload.mismatch"


def head_of(block: bytes) -> bytes:
    crc: int = google_crc32c.value(block)
    return crc.to_bytes(HEAD_BYTES, "big")


def body_bytes(n_bytes: int, block_bytes: int) -> int:
    """The length of a body that carries so many bytes of a file."""
    return n_bytes + HEAD_BYTES * -(-n_bytes // block_bytes)


def content_bytes(length: int, block_bytes: int) -> int:
    """How many bytes of a file a body of this length carries."""
    whole, rest = divmod(length, HEAD_BYTES + block_bytes)
    return whole * block_bytes + max(0, rest - HEAD_BYTES)


class Blocks:
    """Takes a body in, however it was cut on its way, and gives out what was checked."""

    def __init__(self, name: str, block_bytes: int) -> None:
        self._name = name
        self._block_bytes = block_bytes
        self._begin()

    def _begin(self) -> None:
        self._head = b""
        self._crc = 0
        self._left = self._block_bytes
        self._pieces: list[bytes] = []

    def fed(self, data: bytes) -> Iterator[bytes]:
        """The blocks that became whole, in pieces as they came. Raises: Damaged."""
        start = 0
        while start < len(data):
            if len(self._head) < HEAD_BYTES:
                head = data[start : start + HEAD_BYTES - len(self._head)]
                self._head += head
                start += len(head)
                continue
            piece = data[start : start + self._left]
            self._crc = google_crc32c.extend(self._crc, piece)
            self._pieces.append(piece)
            self._left -= len(piece)
            start += len(piece)
            if not self._left:
                yield from self._checked()

    def ended(self) -> Iterator[bytes]:
        """The last block, which may be shorter. Raises: Damaged."""
        if self._head:
            yield from self._checked()

    def begun(self) -> Iterator[bytes]:
        """What came of a block that isn't whole, unchecked."""
        yield from self._pieces

    def _checked(self) -> Iterator[bytes]:
        if len(self._head) < HEAD_BYTES or self._crc != int.from_bytes(self._head, "big"):
            raise Damaged(
                f"{self._name} was damaged on its way: a block isn't what its checksum says. What came before it is "
                "kept; ask for the offset and go on there."
            )
        pieces = self._pieces
        self._begin()
        yield from pieces
