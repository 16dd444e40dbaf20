"""Ids of what runs record."""

import secrets
import time


def artifact_id(now_ms: int | None = None) -> str:
    """A UUID of version 7 (RFC 9562, section 5.7) as 32 hex digits: ordered by time, else random."""
    ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    value = (
        (ms & (1 << 48) - 1) << 80
        | 0x7 << 76
        | secrets.randbits(12) << 64
        | 0b10 << 62
        | secrets.randbits(62)
    )
    return f"{value:032x}"
