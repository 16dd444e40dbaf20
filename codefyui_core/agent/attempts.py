"""One attempt on this agent: its stream, its place in the line, and what the control plane says of it."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from codefyui_core.runs.status import Phase, StopReason
from codefyui_core.wire.codec import items_frame
from codefyui_core.wire.limits import BATCH_BYTES
from codefyui_core.wire.messages import AttemptKey, EndItem, HelloAttempt, ItemKind, SkipItem

from .carrying.grants import Grants
from .carrying.left import Left
from .folder import Head
from .machine import STOP_GRACE_S, Effect, Machine, State
from .stream import Stream, item


@dataclass(frozen=True, slots=True)
class Batch:
    """A frame of items and the numbers in it."""

    frame: bytes
    last: int


class Attempt:
    """In hello from the moment that its assign was read (``stream`` is None then), until it is recorded."""

    def __init__(
        self,
        *,
        head: Head,
        path: Path | None,
        stream: Stream | None,
        effects: Callable[["Attempt", Iterable[Effect]], None],
        log: logging.Logger,
        lost_end: EndItem | None = None,
        recovered: bool = False,
        left: Left | None = None,
    ) -> None:
        """``left``: files of a recovered one that weren't delivered."""
        self.head = head
        self.path = path
        self.stream = stream
        self.machine = Machine()
        self.position = 0
        self.late = False
        self.kept = False
        """Of a foreign database: not sent."""
        self.set_aside = False
        """Its run is unknown: the spool is set aside instead of deleted."""
        self.recorded: str | None = None
        self.grants = Grants()
        self._effects = effects
        self._log = log
        self._recovered = recovered and stream is not None and ItemKind.END not in stream.spool.kinds
        self.left = left
        self.lost_end = lost_end
        self._next = 1
        self._unacked: deque[tuple[int, int]] = deque()
        self._welcomed = False
        if recovered and stream is not None:
            self._restore(stream)

    def _restore(self, stream: Stream) -> None:
        machine = self.machine
        machine.state = State.PUBLISHING
        if self.lost_end is not None:
            machine.stop_reason = self.lost_end.stop_reason
        if ItemKind.END in stream.spool.kinds:
            machine.state, machine.end_seq = State.ENDED, stream.last

    # ------------------------------------------------------------ as hello lists it

    @property
    def key(self) -> AttemptKey:
        return self.head.key

    @property
    def phase(self) -> Phase:
        if not self._recovered:
            return self.machine.phase
        exited = self.stream is not None and ItemKind.EXITED in self.stream.spool.kinds
        exited = exited or (self.left is not None and self.left.goes_on)
        return Phase.PUBLISHING if exited else Phase.LOST

    @property
    def live(self) -> bool:
        """Counted in beats: the control plane expects something of it."""
        return not (self.kept or self.machine.discarded or self.machine.state is State.GONE)

    @property
    def size(self) -> int:
        return 0 if self.stream is None else self.stream.spool.size

    def listed(self) -> HelloAttempt:
        stream = self.stream
        return HelloAttempt(
            run_id=self.head.run_id,
            attempt=self.head.attempt,
            lease=self.head.lease,
            db_id=self.head.db_id,
            phase=self.phase,
            first_kept=1 if stream is None else stream.spool.first_kept,
            last=0 if stream is None else stream.last,
            devices=self.head.devices,
            grant_version=self.grants.version,
            bytes=self.size,
            stopping=self.machine.stopping,
        )

    # ------------------------------------------------------------ what the control plane says

    async def resume(self, position: int, stop: StopReason | None) -> None:
        """The verdict of a welcome: go on behind ``position``."""
        self.late = False
        self._send_from(position)
        if self._recovered:
            await self._take_up(position)
        if stop is not None:
            # Before the position: that may open the start gate.
            self._do(self.machine.stop(stop, repeated=True))
        self.acked(position)

    async def end_late(self, position: int) -> None:
        """The run is over without us: stop; only the end is wanted."""
        self.late = True
        self._send_from(position)
        if self._recovered:
            self._continue_behind(position)
            await self.end()
        self.stop(StopReason.LATE)

    def discard(self, recorded: str | None) -> None:
        self.recorded = recorded
        self.set_aside = recorded is None
        self._do(self.machine.discard())

    def stop(self, reason: StopReason, grace_s: float = STOP_GRACE_S) -> None:
        self._do(self.machine.stop(reason, grace_s))

    def acked(self, seq: int, recorded: str | None = None) -> None:
        self.recorded = recorded or self.recorded
        self.position = max(self.position, seq)
        if self.stream is not None:
            self.stream.trim(self.position)
        while self._unacked and self._unacked[0][0] <= self.position:
            self._unacked.popleft()
        self._next = max(self._next, self.position + 1)
        self._do(self.machine.acked(seq))

    def rewind(self, position: int) -> None:
        self._send_from(position)

    async def _take_up(self, position: int) -> None:
        """No process of before can be alive. One whose processes had ended goes on with its files."""
        self._continue_behind(position)
        if self.left is not None and self.left.goes_on:
            self._do([Effect.PUBLISH])
            return
        if self.left is not None:
            assert self.stream is not None
            for event in self.left.events:
                await self.stream.append(ItemKind.EVENT, event, must_sync=True)
        await self.end()

    def _continue_behind(self, position: int) -> None:
        """The first number that nobody has used (R5)."""
        assert self.stream is not None
        self._recovered = False
        self.stream.spool.continue_at(max(self.stream.last, position) + 1)

    async def end(self) -> None:
        """Of a recovered one: as it was written down, or because its process is lost."""
        assert self.stream is not None
        end = self.lost_end or EndItem(
            outcome=None,
            stop_reason=StopReason.AGENT_RESTARTED,
            error="the agent restarted while this run executed",
        )
        seq = await self.stream.append(ItemKind.END, item(ItemKind.END, end.model_dump(mode="json")))
        self._do(self.machine.ended(seq))

    def _do(self, effects: Iterable[Effect]) -> None:
        self._effects(self, effects)

    # ------------------------------------------------------------ the line

    def disconnected(self) -> None:
        """Nothing is under way any more, and nothing is sent until the next verdict."""
        self._welcomed = False
        self._unacked.clear()

    def joined(self) -> None:
        """Assigned over this connection: its stream needs no verdict."""
        self._welcomed = True

    @property
    def unacked_bytes(self) -> int:
        return sum(size for _, size in self._unacked)

    @property
    def ended(self) -> bool:
        """It executes no more."""
        return self.machine.state in {State.ENDED, State.GONE}

    @property
    def sendable(self) -> bool:
        if self.stream is None or self.kept or self.machine.discarded or not self._welcomed:
            return False
        if self.late and self.machine.state is not State.ENDED:
            return False
        return self._next <= self.stream.sendable

    async def batch(self, limit_bytes: int = BATCH_BYTES) -> Batch | None:
        """The next items, from where the last batch ended: within the limit, but one at least."""
        stream, first = self.stream, self._next
        assert stream is not None
        skip = self._skip(stream, first)
        if skip is not None:
            payload = item(ItemKind.SKIP, skip.model_dump(mode="json", by_alias=True))
            return self._batch([payload], first, skip.to)
        payloads = await stream.read(first, limit_bytes=limit_bytes)
        if not payloads and self._next == first and first <= stream.spool.sendable:
            await stream.look_again(first)
            return await self.batch(limit_bytes) if stream.gap(first) is not None else None
        if not payloads or self._next != first or not self._welcomed:
            return None
        return self._batch(payloads, first, first + len(payloads) - 1)

    def _skip(self, stream: Stream, first: int) -> SkipItem | None:
        end = self.machine.end_seq
        if self.late and end is not None and first < end:
            return SkipItem.model_validate({"from": first, "to": end - 1, "reason": "late"})
        gap = stream.gap(first)
        if gap is None:
            return None
        reason = "not_kept" if first < stream.spool.first_kept else "corrupt"
        return SkipItem.model_validate({"from": first, "to": gap.last, "reason": reason})

    def _batch(self, payloads: Sequence[bytes], first: int, last: int) -> Batch:
        frame = items_frame(self.key, self.head.lease, first, payloads)
        self._next = last + 1
        self._unacked.append((last, len(frame)))
        return Batch(frame, last)

    def _send_from(self, position: int) -> None:
        self.position = max(self.position, position)
        self._next = position + 1
        self._unacked.clear()
        self._welcomed = True
