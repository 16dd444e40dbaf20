"""Where a run stands and what may happen to it: every transition, as one table.

``docs/protocol.md`` has the reasons. A line gives the next state and the effects in order; those in the second
half of ``Effect`` are carried out after the transaction is committed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from codefyui_core.errors import CodefyError


class State(StrEnum):
    """A run together with its newest attempt."""

    QUEUED = "queued"
    ASSIGNED = "assigned"
    """The attempt is committed and maybe sent; nothing has run."""
    ACTIVE = "active"
    AWAY_ASSIGNED = "away, was assigned"
    AWAY_ACTIVE = "away, was active"
    LATE = "final, unsettled"
    """The control plane ended it alone; its worker may still execute it."""
    SETTLED = "final, settled"
    """Nobody can still be executing it."""


class Event(StrEnum):
    """What can happen to a run."""

    PLACE = "placed on a worker or on the server"
    DROP = "ended before it was placed"
    STOP = "asked to stop"
    ACCEPTED = "item accepted"
    ITEM = "item"
    EXITED = "item exited"
    END = "item end"
    REFUSED_FOR_NOW = "refused, may be tried again"
    REFUSED = "refused for good"
    LINK_DOWN = "link down"
    LINK_LOST = "link down, no grace"
    LISTED = "hello lists it"
    LISTED_LOST = "hello lists it as lost"
    UNLISTED = "hello doesn't list it"
    UNLISTED_OVER = "hello doesn't list it, and it isn't to be sent again"
    GRACE_OVER = "grace over"
    REMOVED = "worker removed"
    REKEYED = "worker re-keyed"
    SHUTDOWN_OVER = "shutdown grace over"
    TAKE_OVER = "server start, with grace"
    TAKE_OVER_LOST = "server start, nothing to wait for"
    PROCESS_GONE = "the process of an own run is gone with its server"


class Effect(StrEnum):
    """What a transition does beside changing the state."""

    FREE_SLOTS = "free slots"
    KEEP_STOP = "store who asked to stop"
    MARK_START = "store the start time"
    WARN_AWAY = "warn worker_disconnected"
    MARK_AWAY = "store why it is away"
    WARN_BACK = "warn worker_reconnected"
    CLOSE = "final status and closing event"
    KEEP_LATE_RESULT = "store late_result"

    SEND_ASSIGN = "send assign"
    SEND_STOP = "send stop"
    START_GRACE = "start grace"
    STOP_GRACE = "stop grace"


@dataclass(frozen=True, slots=True)
class Line:
    """One transition."""

    next: State
    effects: tuple[Effect, ...] = ()


class IllegalTransition(CodefyError):
    """An event that has no line in the table for the state: a bug, or a peer that breaks the protocol."""

    default_code = "run.illegal_transition"

    def __init__(self, state: State, event: Event, story: Iterable[str] = ()) -> None:
        told = "; ".join(story)
        super().__init__(
            f"a run that is {state.value} can't have: {event.value}{f' ({told})' if told else ''}"
        )
        self.state, self.event = state, event


_Q, _S, _A = State.QUEUED, State.ASSIGNED, State.ACTIVE
_WS, _WA = State.AWAY_ASSIGNED, State.AWAY_ACTIVE
_LATE, _DONE = State.LATE, State.SETTLED
_FREE, _STOP, _CLOSE = Effect.FREE_SLOTS, Effect.KEEP_STOP, Effect.CLOSE
_AWAY = (Effect.WARN_AWAY, Effect.START_GRACE)
_BACK = (Effect.WARN_BACK, Effect.STOP_GRACE)
_OVER = (_FREE, _CLOSE, Effect.STOP_GRACE)

TRANSITIONS: Mapping[tuple[State, Event], Line] = {
    # waiting
    (_Q, Event.PLACE): Line(_S),
    (_Q, Event.STOP): Line(_DONE, (_STOP, _CLOSE)),
    (_Q, Event.DROP): Line(_DONE, (_CLOSE,)),
    # assigned
    (_S, Event.ACCEPTED): Line(_A, (Effect.MARK_START,)),
    (_S, Event.STOP): Line(_S, (_STOP, Effect.SEND_STOP)),
    (_S, Event.REFUSED_FOR_NOW): Line(_Q, (_FREE,)),
    (_S, Event.REFUSED): Line(_DONE, _OVER),
    (_S, Event.LISTED): Line(_S),
    (_S, Event.LISTED_LOST): Line(_WS, (Effect.STOP_GRACE,)),
    (_S, Event.UNLISTED): Line(_S, (Effect.SEND_ASSIGN,)),
    (_S, Event.UNLISTED_OVER): Line(_DONE, _OVER),
    (_S, Event.LINK_DOWN): Line(_WS, _AWAY),
    (_S, Event.LINK_LOST): Line(_LATE, _OVER),
    (_S, Event.REMOVED): Line(_DONE, _OVER),
    (_S, Event.REKEYED): Line(_LATE, _OVER),
    (_S, Event.SHUTDOWN_OVER): Line(_LATE, _OVER),
    (_S, Event.TAKE_OVER): Line(_WS, _AWAY),
    (_S, Event.TAKE_OVER_LOST): Line(_LATE, _OVER),
    (_S, Event.PROCESS_GONE): Line(_DONE, _OVER),
    # active
    (_A, Event.ITEM): Line(_A),
    (_A, Event.EXITED): Line(_A, (_FREE,)),
    (_A, Event.END): Line(_DONE, _OVER),
    (_A, Event.STOP): Line(_A, (_STOP, Effect.SEND_STOP)),
    (_A, Event.LISTED): Line(_A),
    (_A, Event.LISTED_LOST): Line(_WA, (Effect.STOP_GRACE,)),
    (_A, Event.UNLISTED_OVER): Line(_DONE, _OVER),
    (_A, Event.LINK_DOWN): Line(_WA, _AWAY),
    (_A, Event.LINK_LOST): Line(_LATE, _OVER),
    (_A, Event.REMOVED): Line(_DONE, _OVER),
    (_A, Event.REKEYED): Line(_LATE, _OVER),
    (_A, Event.SHUTDOWN_OVER): Line(_LATE, _OVER),
    (_A, Event.TAKE_OVER): Line(_WA, _AWAY),
    (_A, Event.TAKE_OVER_LOST): Line(_LATE, _OVER),
    (_A, Event.PROCESS_GONE): Line(_DONE, _OVER),
    # away; items arrive here only after hello listed the attempt as lost
    (_WS, Event.ACCEPTED): Line(_WA, (Effect.MARK_START,)),
    (_WS, Event.STOP): Line(_WS, (_STOP,)),
    (_WS, Event.LISTED): Line(_S, _BACK),
    (_WS, Event.LISTED_LOST): Line(_WS, (Effect.STOP_GRACE,)),
    (_WS, Event.UNLISTED): Line(_S, (*_BACK, Effect.SEND_ASSIGN)),
    (_WS, Event.UNLISTED_OVER): Line(_DONE, _OVER),
    (_WS, Event.LINK_DOWN): Line(_WS, (Effect.MARK_AWAY, Effect.START_GRACE)),
    (_WS, Event.LINK_LOST): Line(_LATE, _OVER),
    (_WS, Event.GRACE_OVER): Line(_LATE, _OVER),
    (_WS, Event.REMOVED): Line(_DONE, _OVER),
    (_WS, Event.REKEYED): Line(_LATE, _OVER),
    (_WS, Event.SHUTDOWN_OVER): Line(_LATE, _OVER),
    (_WS, Event.TAKE_OVER): Line(_WS, _AWAY),
    (_WS, Event.TAKE_OVER_LOST): Line(_LATE, _OVER),
    (_WA, Event.ITEM): Line(_WA),
    (_WA, Event.EXITED): Line(_WA, (_FREE,)),
    (_WA, Event.END): Line(_DONE, _OVER),
    (_WA, Event.STOP): Line(_WA, (_STOP,)),
    (_WA, Event.LISTED): Line(_A, _BACK),
    (_WA, Event.LISTED_LOST): Line(_WA, (Effect.STOP_GRACE,)),
    (_WA, Event.UNLISTED_OVER): Line(_DONE, _OVER),
    (_WA, Event.LINK_DOWN): Line(_WA, (Effect.MARK_AWAY, Effect.START_GRACE)),
    (_WA, Event.LINK_LOST): Line(_LATE, _OVER),
    (_WA, Event.GRACE_OVER): Line(_LATE, _OVER),
    (_WA, Event.REMOVED): Line(_DONE, _OVER),
    (_WA, Event.REKEYED): Line(_LATE, _OVER),
    (_WA, Event.SHUTDOWN_OVER): Line(_LATE, _OVER),
    (_WA, Event.TAKE_OVER): Line(_WA, _AWAY),
    (_WA, Event.TAKE_OVER_LOST): Line(_LATE, _OVER),
    # ended by the control plane alone: what its worker still says is taken in and not logged
    (_LATE, Event.ACCEPTED): Line(_LATE),
    (_LATE, Event.ITEM): Line(_LATE),
    (_LATE, Event.EXITED): Line(_LATE),
    (_LATE, Event.END): Line(_DONE, (Effect.KEEP_LATE_RESULT,)),
    (_LATE, Event.UNLISTED_OVER): Line(_DONE),
    (_LATE, Event.REMOVED): Line(_DONE),
}


def step(state: State, event: Event, story: Callable[[], Iterable[str]] = tuple) -> Line:
    """The line for ``event`` in ``state``.

    Raises: IllegalTransition with ``story``, what is known of the run.
    """
    line = TRANSITIONS.get((state, event))
    if line is None:
        raise IllegalTransition(state, event, story())
    return line
