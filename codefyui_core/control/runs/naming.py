"""New names for runs."""

import secrets

from codefyui_core.ids import RunId


def new_run_id(now_ms: int) -> RunId:
    """UUID version 7 (RFC 9562) as 32 hex digits: ids sort by the time that they were made at."""
    random = secrets.randbits(74)
    high, low = random >> 62, random & (2**62 - 1)
    value = (now_ms & (2**48 - 1)) << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low
    return RunId(f"{value:032x}")
