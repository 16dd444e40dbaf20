"""Which of a run's many inputs are in the bucket already: a listing tells of a thousand objects in one answer."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from codefyui_core.plugin import InputItem, Refused, Sha256

from .client import Answer, BucketClient
from .models import input_key

WORTH_LISTING = 32
"""Inputs that an answer has to tell of: it costs as much as so many questions for one object."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What is known; all other inputs have to be asked for."""

    there: frozenset[Sha256] = frozenset()
    """Whole."""
    absent: frozenset[Sha256] = frozenset()
    """Or of another size."""


async def look(client: BucketClient, prefix: str, items: Iterable[InputItem]) -> Looked:
    """Asks for nothing when there are few inputs, and for no more when they are few among those of others.

    Raises: StorageProblem, unless it is that nobody may list the bucket.
    """
    sizes = {item.sha256: item.size_bytes for item in items}
    waiting, known = sorted(sizes), Looked()
    while len(waiting) >= WORTH_LISTING:
        try:
            page = await client.call("list_objects_v2", **_from(prefix, waiting[0]))
        except Refused:
            return known
        listed, last = _read(page, input_key(prefix, Sha256("")))
        covered = [one for one in waiting if last is None or one <= last]
        whole = frozenset(one for one in covered if listed.get(one) == sizes[one])
        known = Looked(known.there | whole, known.absent | (frozenset(covered) - whole))
        waiting = waiting[len(covered) :]
        if len(covered) < WORTH_LISTING:
            break
    return known


def _from(prefix: str, first: Sha256) -> dict[str, Any]:
    """All that is listed begins after this name; no object has the beginning of a hash for one."""
    return {
        "Prefix": input_key(prefix, Sha256("")),
        "StartAfter": input_key(prefix, Sha256(first[:-1])),
        "MaxKeys": 1000,
    }


def _read(page: Answer, folder: str) -> tuple[Mapping[str, int], str | None]:
    """Sizes by hash, and the last hash that the listing got to; None: there are no more."""
    found = {one["Key"].removeprefix(folder): int(one["Size"]) for one in page.get("Contents", ())}
    return found, max(found, default="") if page.get("IsTruncated") else None
