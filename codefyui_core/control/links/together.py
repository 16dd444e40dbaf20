"""Batches that wait for the database, taken in together: a backlog costs fewer transactions. Pure."""

from collections.abc import Iterable
from typing import TypeGuard

from codefyui_core.wire.limits import MIB
from codefyui_core.wire.messages import FromAgent, Item, Items

MAX_ITEMS = 2_000
MAX_BYTES = 1 * MIB


def together(waiting: Iterable[tuple[int, FromAgent]]) -> tuple[FromAgent, int]:
    """The first of the messages that wait, and how many of them it stands for: batches of one attempt that go on
    where the one before ends are one. ``waiting``: sizes in bytes and messages, at least one.
    """
    (size, first), *others = waiting
    if not isinstance(first, Items):
        return first, 1
    items: list[Item] = list(first.items)
    count = 1
    for more, message in others:
        size += more
        if not _follows(message, first, len(items)) or size > MAX_BYTES:
            break
        if len(items) + len(message.items) > MAX_ITEMS:
            break
        items += message.items
        count += 1
    return (first if count == 1 else first.model_copy(update={"items": tuple(items)})), count


def _follows(message: FromAgent, first: Items, count: int) -> TypeGuard[Items]:
    """A ``skip`` stands for more numbers than one: what follows it is taken in by itself."""
    return (
        isinstance(message, Items)
        and (message.run_id, message.attempt, message.lease) == (first.run_id, first.attempt, first.lease)
        and message.first == first.first + count
    )
