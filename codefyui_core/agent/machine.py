"""The life of one attempt at the agent, as a pure machine: events in, effects out.

RECEIVED -> PREPARING -> RUNNING -> PUBLISHING -> ENDED -> GONE. A stop is a mark on the first three.
The start gate: ``Go`` comes only when the process is ready *and* the control plane acknowledged item 1.
"""

from dataclasses import dataclass
from enum import Enum

from codefyui_core.runs.status import Phase, StopReason

STOP_GRACE_S = 10.0
FILES_WITHIN_S = 60.0
"""For uploads under way at a stop of the agent. What isn't done then stays for its next process."""


class State(Enum):
    RECEIVED = "received"
    """Its assign was read; nothing is on disk yet."""
    PREPARING = "preparing"
    """``accepted`` is on disk; inputs and process are being made ready."""
    RUNNING = "running"
    PUBLISHING = "publishing"
    """Its processes are gone."""
    ENDED = "ended"
    """Its ``end`` is in the stream."""
    GONE = "gone"
    """Recorded, or given up by a verdict: nothing is left of it."""


PHASES = {
    State.RECEIVED: Phase.RECEIVED,
    State.PREPARING: Phase.PREPARING,
    State.RUNNING: Phase.RUNNING,
    State.PUBLISHING: Phase.PUBLISHING,
    State.ENDED: Phase.ENDED,
    State.GONE: Phase.ENDED,
}


class Effect(Enum):
    """What the driver is to do."""

    PREPARE = "prepare"
    GO = "go"
    STOP_PROCESS = "stop_process"
    ABANDON = "abandon"
    """Give the preparation up, whatever there is of it; nothing ran."""
    DROP_FILES = "drop_files"
    """What isn't delivered yet stays on this machine."""
    WRITE_EXITED = "write_exited"
    PUBLISH = "publish"
    WRITE_END = "write_end"
    REMOVE = "remove"


class Illegal(Exception):
    """An event that can't come in this state: a bug, told with its story."""


@dataclass(slots=True, kw_only=True)
class Machine:
    """One attempt."""

    state: State = State.RECEIVED
    has_process: bool = False
    ready: bool = False
    acknowledged: bool = False
    stop_reason: StopReason | None = None
    grace_s: float = STOP_GRACE_S
    end_seq: int | None = None
    discarded: bool = False
    story: tuple[str, ...] = ()

    @property
    def phase(self) -> Phase:
        return PHASES[self.state]

    @property
    def stopping(self) -> bool:
        return self.stop_reason is not None and self.state in _EXECUTING

    # ------------------------------------------------------------ events

    def accepted(self) -> list[Effect]:
        """The ``accepted`` item is on disk."""
        self._in("accepted", State.RECEIVED)
        self.state = State.PREPARING
        return [Effect.ABANDON] if self.stop_reason else [Effect.PREPARE]

    def launched(self) -> list[Effect]:
        """A process exists; it may have been stopped for meanwhile."""
        self._in("launched", State.PREPARING)
        self.has_process = True
        return [Effect.STOP_PROCESS] if self.stop_reason else []

    def prepared(self) -> list[Effect]:
        """Inputs are there and the process waits for ``go``."""
        self._in("prepared", State.PREPARING)
        self.ready = True
        return self._gate()

    def acked(self, seq: int) -> list[Effect]:
        """Everything up to ``seq`` is committed. At any time."""
        self._note(f"acked {seq}")
        self.acknowledged = self.acknowledged or seq >= 1
        if self.end_seq is not None and seq >= self.end_seq:
            return self._gone()
        return self._gate()

    def stop(
        self, reason: StopReason, grace_s: float = STOP_GRACE_S, *, repeated: bool = False
    ) -> list[Effect]:
        """Somebody asks it to stop. A user's wish beats the others; else the first reason stays. Once the process
        is gone, how it ended stands, and a stop is one of the files that aren't delivered yet; unless it is only
        said again (``repeated``) and was the one that ended the process.
        """
        self._note(f"stop {reason}")
        if self.state is State.PUBLISHING:
            known = repeated and self.stop_reason is not None
            return [] if known or reason not in _OF_FILES else [Effect.DROP_FILES]
        if self.state not in _EXECUTING:
            return []
        first = self.stop_reason is None
        if first or reason is StopReason.USER:
            self.stop_reason = reason
        self.grace_s = grace_s if first else min(self.grace_s, grace_s)
        if self.has_process:
            return [Effect.STOP_PROCESS]
        return [Effect.ABANDON] if first and self.state is State.PREPARING else []

    def process_gone(self) -> list[Effect]:
        """The process tree is gone and the pipe is read to its end."""
        self._in("process gone", State.PREPARING, State.RUNNING)
        self.state = State.PUBLISHING
        return [Effect.WRITE_EXITED, Effect.PUBLISH]

    def never_started(self) -> list[Effect]:
        """It was abandoned, or couldn't be prepared: there is no process and there won't be one."""
        self._in("never started", State.PREPARING)
        self.state = State.PUBLISHING
        return [Effect.PUBLISH]

    def published(self) -> list[Effect]:
        """Every file is where it goes, or given up."""
        self._in("published", State.PUBLISHING)
        return [Effect.WRITE_END]

    def ended(self, seq: int) -> list[Effect]:
        """The ``end`` item has this number."""
        self._in("ended", State.PUBLISHING)
        self.state, self.end_seq = State.ENDED, seq
        return self._gone() if self.discarded else []

    def discard(self) -> list[Effect]:
        """Nobody wants it: stop what executes, and forget it once it is gone."""
        self._note("discard")
        self.discarded = True
        if self.state is State.ENDED:
            return self._gone()
        return self.stop(StopReason.LATE)

    # ------------------------------------------------------------ inside

    def _gate(self) -> list[Effect]:
        if self.state is State.PREPARING and self.ready and self.acknowledged and not self.stop_reason:
            self.state = State.RUNNING
            return [Effect.GO]
        return []

    def _gone(self) -> list[Effect]:
        if self.state is State.GONE:
            return []
        self.state = State.GONE
        return [Effect.REMOVE]

    def _in(self, event: str, *states: State) -> None:
        self._note(event)
        if self.state not in states:
            raise Illegal(f"{event} in {self.state.value}; before: {', '.join(self.story)}")

    def _note(self, event: str) -> None:
        self.story = (*self.story[-19:], event)


_EXECUTING = frozenset({State.RECEIVED, State.PREPARING, State.RUNNING})
_OF_FILES = frozenset({StopReason.USER, StopReason.LATE, StopReason.REVOKED})
"""Somebody doesn't want them, or nobody takes them. After the other reasons, the next agent delivers what is left."""
