"""The rules of the line that can be switched off, one at a time, to see that the search then finds harm."""

from enum import Enum
from typing import Any


class Rule(Enum):
    ONE_TRANSACTION = "events and position are committed together"
    READS_AGAIN = "after a commit in doubt, position and cursor are read again"
    START_GATE = "user code starts only after item 1 was acknowledged"
    POSITION_WINS = "a new agent process numbers from the position, if its disk has less"
    LISTS_MEMORY = "hello lists what was read and isn't on the disk yet"
    LISTS_DISK = "hello lists what a process of before left on the disk"
    DROPS_OLD_FRAMES = "frames of the old socket are dropped unread before hello is built"
    ONE_END = "a final status never changes"
    STOP_STORED_FIRST = "a stop is committed before the agent is told"
    REMOVE_STORED_FIRST = "a removal is committed before the agent is told"
    NEWEST_SPEAKS = "what comes of an older session is ignored"
    NO_OLD_HELLO = "a hello behind a newer one of the same process is refused"
    HELD_NAME = "who can't prove that it is the holder waits while its runs are in flight"
    SLOT_UNTIL_EXITED = "a slot is held until the processes are gone"
    GHOSTS_BLOCK = "devices of an attempt that is over stay blocked while its process is there"


Off = frozenset[Rule]
"""Rules that are switched off."""
NOTHING_OFF: Off = frozenset()


class Violation(Exception):
    """Something that must hold doesn't. ``kind`` is one of the words of ``checks``."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.world: Any = None
        """The state in which it was seen, when it was seen in one."""
