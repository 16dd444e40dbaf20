"""What the C library does with memory that is free again."""

import ctypes

KEPT_BYTES = 16 << 20
LARGE_BYTES = 8 << 20
"""From here on a block has pages of its own, which go back at once."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""mallopt(3)."""


def keep_freed_memory() -> None:
    """Have up to 16 MiB of it kept for the next use; where the C library is glibc, elsewhere nothing changes.

    Each piece of a body that is received is a buffer of 256 KiB, in an agent of 1 MiB. By default glibc gives such buffers back, and the
    kernel clears each of their pages once more for the next one: that can take longer than receiving itself.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
    mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
