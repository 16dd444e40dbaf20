"""Ids in a known order, where a test needs to name them."""

from itertools import count


class CountingIds:
    """32 hex digits each, counting from 1: ``000…001``, ``000…002``, …"""

    def __init__(self) -> None:
        self._numbers = count(1)

    def __call__(self) -> str:
        return f"{next(self._numbers):032x}"
