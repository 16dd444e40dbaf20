"""What a run may ask for: a device, any of a kind, or the best that there is. Pure."""

from collections.abc import Sequence

KINDS = ("cuda", "mps", "cpu")
"""Best first: what ``auto`` takes."""


def kind_of(device: str) -> str:
    """``cuda:1`` -> ``cuda``."""
    return device.partition(":")[0]


def matching(asked: str, offered: Sequence[str]) -> tuple[str, ...]:
    """The devices that would do: the one that is named, all of a kind, or for ``auto`` all of the best kind."""
    if asked == "auto":
        kinds = {kind_of(device) for device in offered}
        asked = next((kind for kind in KINDS if kind in kinds), "cpu")
    if asked in offered:
        return (asked,)
    return tuple(device for device in offered if kind_of(device) == asked)
