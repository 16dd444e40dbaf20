"""Wall time as the tables have it."""

from codefyui_core.plugin.hosts import Clock


def milliseconds(clock: Clock) -> int:
    """Since 1970, UTC."""
    return int(clock.now().timestamp() * 1000)
