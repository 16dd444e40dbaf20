"""What the control plane owes the storage backend of an attempt: calls that it hasn't answered yet, in order. Pure."""

from enum import StrEnum
from typing import NamedTuple

from codefyui_core.plugin.values import JsonObject

from .events import MAX_INT

LAST = MAX_INT
"""The ``seq`` of the end of an attempt: behind all items of its stream."""


class Call(StrEnum):
    """Of a storage backend's control half."""

    TOLD = "told"
    """A message of its agent half."""
    ACCEPT = "accept"
    """A receipt of a published file, whose row reads ``arriving`` meanwhile."""
    SETTLED = "settled"
    """Nothing more comes."""


class Owed(NamedTuple):
    """One call. Stored in the transaction of what it is about."""

    attempt: int
    seq: int
    """Of the item that it is about. Calls are made in this order."""
    call: Call
    payload: JsonObject
    """What a ``told`` item says, or an ``artifact`` event; of an end nothing."""
