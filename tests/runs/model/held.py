"""The agent's attempt, run as it is over a list instead of a disk."""

import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import orjson

from codefyui_core.agent.attempts import Attempt
from codefyui_core.agent.folder import Head
from codefyui_core.agent.machine import Effect, Machine
from codefyui_core.agent.machine import State as AgentState
from codefyui_core.agent.spool import Gap
from codefyui_core.agent.stream import item
from codefyui_core.runs.status import Outcome, StopReason
from codefyui_core.wire.messages import AcceptedItem, EndItem, ExitedItem, ItemKind

from .ledger import DB, DEVICE, WORKER, finished
from .rules import Off, Rule
from .world import Held, Spool

LOG = logging.getLogger("model")
LOG.disabled = True

ACCEPTED = item(ItemKind.ACCEPTED, AcceptedItem(incarnation="i", devices=(DEVICE,)).model_dump(mode="json"))
EXITED = item(ItemKind.EXITED, ExitedItem(exit_code=0).model_dump(mode="json"))


def event(number: int) -> bytes:
    return item(ItemKind.EVENT, {"n": number}, type="log", ts=1)


@cache
def kind_of(payload: bytes) -> ItemKind:
    return ItemKind(orjson.loads(payload)["kind"])


def events_in(spool: Spool) -> int:
    return sum(one is not None and kind_of(one) is ItemKind.EVENT for one in spool.items)


class Tape:
    """Stands for the attempt's ``Stream`` and for its ``Spool``."""

    first_kept = 1
    size = 0

    def __init__(self, items: Sequence[bytes | None], off: Off) -> None:
        self.items = list(items)
        self._off = off
        self.kinds = {kind_of(one) for one in items if one is not None}

    @property
    def spool(self) -> "Tape":
        return self

    @property
    def last(self) -> int:
        return len(self.items)

    @property
    def sendable(self) -> int:
        return self.last

    async def append(self, _kind: ItemKind, payload: bytes) -> int:
        self.items.append(payload)
        return self.last

    def continue_at(self, seq: int) -> None:
        if Rule.POSITION_WINS not in self._off:
            self.items += [None] * (seq - 1 - self.last)

    async def read(self, first: int, *, limit_bytes: int) -> Sequence[bytes]:
        found = []
        for payload in self.items[first - 1 :]:
            if payload is None:
                break
            found.append(payload)
        return found

    def gap(self, seq: int) -> Gap | None:
        last = seq - 1
        while last < self.last and self.items[last] is None:
            last += 1
        return Gap(seq, last) if last >= seq else None

    def trim(self, position: int) -> None:
        """Whole segments go, and the last one never does."""


class Acted(NamedTuple):
    """What an act on an attempt made of it."""

    held: Held
    spool: Spool | None
    effects: tuple[Effect, ...]
    answer: Any = None


Act = Callable[["Attempt"], Coroutine[Any, Any, Any]]


class Attempts:
    """Acts on attempts by name, each remembered for what it was done to."""

    def __init__(self, off: Off) -> None:
        self._off = off
        self._done: dict[object, Acted] = {}

    def _act(self, key: object, run: int, held: Held, spool: Spool | None, act: Act) -> Acted:
        whole = (key, run, held, spool)
        done = self._done.get(whole)
        if done is None:
            effects: list[Effect] = []
            attempt = self._restored(run, held, spool, effects)
            answer = finished(act(attempt))
            done = Acted(*self._kept(attempt, held, spool), tuple(effects), answer)
            self._done[whole] = done
        return done

    def _restored(
        self, run: int, held: Held, spool: Spool | None, effects: list[Effect], *, found: bool = False
    ) -> Attempt:
        def collect(_attempt: Attempt, more: Iterable[Effect]) -> None:
            effects.extend(more)

        tape = None if spool is None else Tape(spool.items, self._off)
        outcome = (
            None if spool is None or spool.outcome is None else EndItem.model_validate_json(spool.outcome)
        )
        attempt = Attempt(
            head=_head(run, held),
            path=None,
            stream=tape,  # type: ignore[arg-type]  # a double of Stream
            effects=collect,
            log=LOG,
            lost_end=outcome,
            recovered=found,
        )
        if not found:
            attempt.machine = Machine(
                state=AgentState(held.state),
                has_process=held.has_process,
                ready=held.ready,
                acknowledged=held.acknowledged,
                stop_reason=held.stop_reason,
                end_seq=held.end_seq,
                discarded=held.discarded,
            )
            attempt.position, attempt.late, attempt._next = held.position, held.late, held.next
            attempt._recovered, attempt._welcomed = held.recovered, held.welcomed
        return attempt

    def _kept(self, attempt: Attempt, held: Held, spool: Spool | None) -> tuple[Held, Spool | None]:
        machine = attempt.machine
        after = Held(
            attempt=held.attempt,
            lease=held.lease,
            state=machine.state.value,
            has_process=machine.has_process,
            ready=machine.ready,
            acknowledged=machine.acknowledged or Rule.START_GATE in self._off,
            stop_reason=machine.stop_reason,
            end_seq=machine.end_seq,
            discarded=machine.discarded,
            position=attempt.position,
            next=attempt._next,
            late=attempt.late,
            recovered=attempt._recovered,
            welcomed=attempt._welcomed,
        )
        if spool is None or attempt.stream is None:
            return after, spool
        items = tuple(attempt.stream.items)  # type: ignore[attr-defined]  # a Tape
        wrote_end = len(items) > len(spool.items) and kind_of(items[-1]) is not ItemKind.EVENT
        synced = len(items) if wrote_end else spool.synced
        return after, spool._replace(items=items, synced=synced)

    # ------------------------------------------------------------ where attempts come from

    def assigned(self, run: int, attempt: int, lease: str) -> Held:
        """Read from an assignment; nothing is on the disk."""
        held = Held(attempt=attempt, lease=lease)

        async def joined(one: Attempt) -> None:
            one.joined()

        return self._act("assigned", run, held, None, joined).held

    def found(self, run: int, spool: Spool) -> Held:
        """By a new process, on the disk."""
        held = Held(attempt=spool.attempt, lease=spool.lease)
        return self._kept(self._restored(run, held, spool, [], found=True), held, spool)[0]

    # ------------------------------------------------------------ acts

    def accept(self, run: int, held: Held) -> Acted:
        """Make the folder and write ``accepted`` to the disk."""
        spool = Spool(attempt=held.attempt, lease=held.lease)

        async def act(attempt: Attempt) -> None:
            await attempt.stream.append(ItemKind.ACCEPTED, ACCEPTED)  # type: ignore[union-attr]
            attempt.machine.accepted()

        return self._act("accept", run, held, spool, act)

    def prepare(self, run: int, held: Held, spool: Spool) -> Acted:
        """A process is made, and waits for go."""

        async def act(attempt: Attempt) -> None:
            attempt._do(attempt.machine.launched())
            attempt._do(attempt.machine.prepared())

        return self._act("prepare", run, held, spool, act)

    def emit(self, run: int, held: Held, spool: Spool) -> Acted:
        async def act(attempt: Attempt) -> None:
            payload = event(events_in(spool) + 1)
            await attempt.stream.append(ItemKind.EVENT, payload)  # type: ignore[union-attr]

        return self._act("emit", run, held, spool, act)

    def exited(self, run: int, held: Held, spool: Spool, outcome: Outcome | None) -> Acted:
        """The process tree is gone: how it ended is written down, then ``exited``."""
        end = EndItem(outcome=outcome, stop_reason=held.stop_reason)

        async def act(attempt: Attempt) -> None:
            attempt.machine.process_gone()
            await attempt.stream.append(ItemKind.EXITED, EXITED)  # type: ignore[union-attr]

        acted = self._act(("exited", outcome), run, held, spool, act)
        assert acted.spool is not None
        return acted._replace(spool=acted.spool._replace(outcome=end.model_dump_json().encode()))

    def end(self, run: int, held: Held, spool: Spool) -> Acted:
        """Everything is published; or nothing had begun and it is given up."""

        async def act(attempt: Attempt) -> None:
            end = EndItem(stop_reason=held.stop_reason)
            if spool.outcome is not None:
                end = EndItem.model_validate_json(spool.outcome)
            else:
                attempt.machine.never_started()
            attempt.machine.published()
            payload = item(ItemKind.END, end.model_dump(mode="json"))
            seq = await attempt.stream.append(ItemKind.END, payload)  # type: ignore[union-attr]
            attempt._do(attempt.machine.ended(seq))

        return self._act("end", run, held, spool, act)

    # ------------------------------------------------------------ what the line says

    def judged(self, run: int, held: Held, spool: Spool | None, kind: str, verdict: Any) -> Acted:
        """``Holdings._judge`` for one verdict."""

        async def act(attempt: Attempt) -> None:
            match kind:
                case "resume":
                    await attempt.resume(verdict.position, verdict.stop)
                case "late":
                    await attempt.end_late(verdict.position)
                case "discard":
                    attempt.discard(verdict.recorded)
                    if attempt.machine.state is AgentState.PUBLISHING and held.recovered:
                        attempt._do([Effect.REMOVE])

        key = (kind, verdict.position, verdict.stop, verdict.recorded)
        return self._act(key, run, held, spool, act)

    def acked(self, run: int, held: Held, spool: Spool | None, seq: int, recorded: str | None) -> Acted:
        async def act(attempt: Attempt) -> None:
            attempt.acked(seq, recorded)

        return self._act(("ack", seq, recorded), run, held, spool, act)

    def rewound(self, run: int, held: Held, spool: Spool | None, position: int) -> Acted:
        async def act(attempt: Attempt) -> None:
            attempt.rewind(position)

        return self._act(("rewind", position), run, held, spool, act)

    def stopped(self, run: int, held: Held, spool: Spool | None, reason: StopReason) -> Acted:
        async def act(attempt: Attempt) -> None:
            attempt.stop(reason)

        return self._act(("stop", reason), run, held, spool, act)

    def disconnected(self, run: int, held: Held, spool: Spool | None) -> Held:
        async def act(attempt: Attempt) -> None:
            attempt.disconnected()

        return self._act("disconnected", run, held, spool, act).held

    def sent(self, run: int, held: Held, spool: Spool) -> Acted | None:
        """The next batch as a frame; None when nothing may be sent."""

        async def act(attempt: Attempt) -> str | None:
            if not attempt.sendable:
                return None
            batch = await attempt.batch()
            return None if batch is None else batch.frame.decode()

        acted = self._act("send", run, held, spool, act)
        return None if acted.answer is None else acted

    def listed(self, run: int, held: Held, spool: Spool | None) -> str:
        """As hello lists it."""

        async def act(attempt: Attempt) -> str:
            return attempt.listed().model_dump_json()

        text: str = self._act("listed", run, held, spool, act).answer
        return text


def _head(run: int, held: Held) -> Head:
    return Head(
        db_id=DB,
        worker_id=WORKER,
        run_id=f"r{run}",
        attempt=held.attempt,
        lease=held.lease,
        devices=(DEVICE,),
    )
