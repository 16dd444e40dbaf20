"""Which key an output gets when others of its run have the same name: a run may record ``epoch-1.pt`` of two loops, or one
file as it was at several times. Pure.

A store that is asked for an absent object says that a key is taken, and not by what. It may be the output itself, when
the answer to an earlier try was lost; a worker's keys read nothing of what it wrote. So each object bears the mark of its
output, and the control plane, which sees it, is told which keys were taken.
"""

import hashlib
import re
from collections.abc import Iterator
from itertools import count
from pathlib import PurePosixPath

from .models import MOST_TAKEN


def numbered(key: str, number: int) -> str:
    """``best.pt``, ``best-1.pt``, ``best-2.pt``, …"""
    path = PurePosixPath(key)
    return str(path.with_stem(f"{path.stem}-{number}")) if number else key


def mark_of(output: str) -> str:
    """Of the output with this key, which may be any text."""
    return hashlib.sha256(output.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def is_named_after(key: str, base: str) -> bool:
    """One of the keys that an output of this name may have."""
    if key == base:
        return True
    path = PurePosixPath(base)
    pattern = re.escape(f"{path.parent}/{path.stem}") + r"-[1-9][0-9]{0,5}" + re.escape(path.suffix)
    return re.fullmatch(pattern, key) is not None


class Names:
    """Of one session. What is in the bucket from before is found out by asking for an absent object."""

    def __init__(self) -> None:
        self._owners: dict[str, str | None] = {}
        """Key -> the output that has it; None: it was taken."""
        self._keys: dict[str, list[str]] = {}
        """Output -> its keys."""
        self._taken: list[str] = []
        self._stored: set[str] = set()
        """Keys whose object is known to be their owner's."""
        self._next: dict[str, int] = {}

    def for_output(self, base: str, output: str, begun: str | None = None) -> Iterator[tuple[str, bool]]:
        """Keys to try, each with whether the object there is the output's own. ``begun``: the key of an upload that an
        earlier try began. Say ``taken`` of one that isn't free, ``stored`` of the one that was.
        """
        if begun is not None and begun not in self._owners:
            self._give(begun, output)
        own = self._keys.get(output, [])
        for key in sorted(own, key=lambda key: key != begun):
            if key == begun or is_named_after(key, base):
                yield key, key in self._stored
        for number in count(self._next.get(base, 0)):
            key = numbered(base, number)
            if key in self._owners:
                continue
            self._next[base] = number + 1
            self._give(key, output)
            yield key, False

    def _give(self, key: str, output: str) -> None:
        self._owners[key] = output
        self._keys.setdefault(output, []).append(key)

    def taken(self, key: str) -> None:
        owner = self._owners.get(key)
        if owner is not None:
            self._keys[owner].remove(key)
        self._owners[key] = None
        self._taken.append(key)

    def all_taken(self, base: str) -> tuple[str, ...]:
        """Of one name, the last ones: a try that was lost had the first that was free."""
        return tuple([key for key in self._taken if is_named_after(key, base)][-MOST_TAKEN:])

    def stored(self, key: str) -> None:
        self._stored.add(key)
