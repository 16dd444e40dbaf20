"""One accepted connection of a worker, from its welcome to its end.

The reader never waits for the database: what needs it goes into one queue, in order, and beats are answered
beside it. So a slow database never looks like a dead worker.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from codefyui_core.clocks import AfterPause, AttentiveClock, Timer
from codefyui_core.control.db.outages import log_failure
from codefyui_core.control.runs.desk import RunDesk
from codefyui_core.errors import CodefyError
from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import WorkerView
from codefyui_core.wire.codec import BadFrame, live_hash
from codefyui_core.wire.limits import SILENCE_S, WINDOW_BYTES
from codefyui_core.wire.messages import (
    Ack,
    AckEntry,
    AgentBeat,
    AgentBye,
    Assign,
    Bad,
    CatalogMessage,
    ControlBeat,
    ControlBye,
    DeviceInfo,
    FromAgent,
    GrantMessage,
    Hello,
    Items,
    ReadReply,
    Refuse,
    Report,
    Rewind,
    Stop,
    WantGrant,
)

from .catalogs import Comparison, Own, compare
from .denials import other_version
from .line import Line
from .reads import Reads
from .together import together
from .windows import Windows

MAX_WAITING_BYTES = 8 * WINDOW_BYTES
"""Of frames that wait for the database. The window keeps honest agents far below it."""
RETRY_S = 1.0
ANSWER_S = 30.0
"""For ``accepted`` or ``refuse`` after an assignment, on a live line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a session needs of the room around it."""

    desk: RunDesk
    clock: AttentiveClock
    log: logging.Logger
    own: Own
    keep_report: Callable[["Session", Report], Awaitable[None]]
    keep_catalog: Callable[[CatalogMessage], Awaitable[None]]
    changed: Callable[[str], None]
    """The row of the worker of that id reads differently now."""
    left: Callable[["Session", str], Awaitable[None]]
    """The agent said bye."""
    windows: Windows


class Session:
    """A connected worker. Implements ``WorkerLink``. ``lock`` is its identity's: every call of the desk is
    made under it, and only while this session is the current one.
    """

    def __init__(
        self,
        *,
        number: int,
        worker_id: str,
        hello: Hello,
        line: Line,
        lock: asyncio.Lock,
        view: WorkerView,
        types: frozenset[str] | None,
        wants_catalog: bool,
        around: Surroundings,
        finishing: str = "",
    ) -> None:
        """``finishing``: why its agent is only let in to finish the runs that it has."""
        self.number = number
        self.worker_id = worker_id
        self.hello = hello
        self.line = line
        self.view = view
        self.current = True
        """False: a newer session speaks, or the line is down. What still comes is dropped unread."""
        self.ready = False
        self.finishing = finishing
        self.accepting = hello.accepting and not finishing
        self.facts: Mapping[str, JsonObject | None] = {}
        self.trust: JsonObject | None = None
        self.free_memory: Mapping[str, int] = {}
        self.measured_at: float | None = None
        self.spool_bytes = 0
        self.down_why = ""
        self.told_down = False
        """The runs know that the line is down."""
        self.reads = Reads(send=line.send, worker=view.name, clock=around.clock)
        self._types = types
        self.wants_catalog = wants_catalog
        self._reported = False
        self._lock = lock
        self._around = around
        self._waiting: deque[tuple[int, FromAgent]] = deque()
        self._waiting_bytes = 0
        self._work = asyncio.Event()
        self._ended = asyncio.Event()
        self._odd_beat: tuple[object, object] | None = None
        self._expected: dict[tuple[str, int], Timer] = {}
        self._probes: list[asyncio.Future[bool]] = []
        self._silence = around.clock.timer(SILENCE_S, self._silent, after_pause=AfterPause.RESTART)
        self.window_bytes = around.windows.join(self)
        """As its agent was told."""

    # ------------------------------------------------------------ as runs see it

    @property
    def incarnation(self) -> str:
        return self.hello.incarnation

    @property
    def devices(self) -> Sequence[DeviceInfo]:
        return tuple(
            device.model_copy(update={"memory_free_bytes": free})
            if (free := self.free_memory.get(device.device)) is not None
            else device
            for device in self.hello.devices
        )

    @property
    def claimed_run(self) -> str | None:
        return self.hello.run_id

    @property
    def fingerprint(self) -> str | None:
        return self.hello.fingerprint

    @property
    def node_types(self) -> frozenset[str] | None:
        own = self._around.own()
        if own is not None and own.definitions.hash == self.hello.catalog_hash:
            return frozenset(own.definitions.nodes)
        return self._types

    @property
    def catalog(self) -> Comparison | None:
        """None: it reported none, or its types haven't come yet."""
        types = self.node_types
        if self.hello.catalog_hash is None or types is None:
            return None
        return compare(self._around.own(), self.hello.catalog_hash, types)

    @property
    def lacks_types(self) -> bool:
        """Also true for one that reported no catalog, as ``any`` skips both."""
        compared = self.catalog
        return compared is None or bool(compared.missing)

    def send(self, message: Assign | Stop | GrantMessage) -> None:
        """Queue a frame; lost when the line is down. An agent that only finishes its runs gets no new one."""
        if self.finishing and isinstance(message, Assign):
            self._decline((message.run_id, message.attempt), self.finishing)
            return
        try:
            self.line.send(message)
        except BadFrame as error:
            self._around.log.error("a message for worker %s can't be sent: %s", self.view.name, error)
            if isinstance(message, Assign):
                self._decline((message.run_id, message.attempt), error.reason, code="too_large", retry=False)
        else:
            self._sent(message)

    def _sent(self, message: Assign | Stop | GrantMessage) -> None:
        if isinstance(message, Assign):
            self._expect_answer((message.run_id, message.attempt))

    def _decline(
        self, key: tuple[str, int], detail: str, *, code: str = "draining", retry: bool = True
    ) -> None:
        """As its agent would: nothing of it began. It goes back to its place in the queue, or has failed."""
        run_id, attempt = key
        known = {"run_id": run_id, "attempt": attempt}
        self._queue(Refuse.model_validate(known | {"code": code, "detail": detail, "retry": retry}), 0)

    def _expect_answer(self, key: tuple[str, int]) -> None:
        """An assignment is accepted or refused within 30 s, or a fresh hello has to tell."""

        def missing() -> None:
            self._around.log.warning("worker %s didn't answer the assignment of %s", self.view.name, key[0])
            self.finish(ControlBye(reason="resync"))

        self._answered(key)
        self._expected[key] = self._around.clock.timer(ANSWER_S, missing, after_pause=AfterPause.RESTART)

    def _answered(self, key: tuple[str, int]) -> None:
        timer = self._expected.pop(key, None)
        if timer is not None:
            timer.cancel()

    def run_gone(self) -> None:
        """Let the agent go: the run that it was started for can't be had any more."""
        self._around.log.info("worker %s can't have run %s any more", self.view.name, self.claimed_run)
        self.finish(ControlBye(reason="run_gone"))

    # ------------------------------------------------------------ reading

    async def read(self) -> str:
        """The reading task: until the socket is closed. The answer says why the line is down."""
        while (frame := await self.line.next_frame()) is not None:
            if not self.current:
                continue
            self._silence.restart()
            for probe in self._probes:
                _settle(probe, alive=True)
            try:
                message = self.line.read(frame)
            except BadFrame as error:
                self._bad(error.word, error.reason)
                continue
            if message is not None:
                self._take(message, len(frame))
        return self.down_why or "the connection was closed"

    def _take(self, message: FromAgent, size: int) -> None:
        match message:
            case AgentBeat():
                self._beat(message)
            case Bad():
                log = self._around.log
                log.warning("worker %s couldn't read %s: %s", self.view.name, message.word, message.reason)
            case ReadReply():
                self.reads.take(message)
            case Hello():
                self._bad("hello", "hello comes once, as the first frame")
            case Items() | Report() | CatalogMessage() | Refuse() | WantGrant() | AgentBye():
                self._queue(message, size)
            case _:
                self._bad(message.t, "nothing was asked")

    @property
    def waiting_bytes(self) -> int:
        """Of frames that wait for the database."""
        return self._waiting_bytes

    def _queue(self, message: FromAgent, size: int) -> None:
        if isinstance(message, Items | Refuse):
            self._answered((message.run_id, message.attempt))
        self._waiting.append((size, message))
        self._waiting_bytes += size
        self._work.set()
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self._around.log.warning("worker %s sends beyond its window", self.view.name)
            self.finish(ControlBye(reason="resync"))

    def _bad(self, word: str, reason: str) -> None:
        self._around.log.warning("worker %s sent an unreadable frame: %s: %s", self.view.name, word, reason)
        self.line.send(Bad(word=word, reason=reason))

    # ------------------------------------------------------------ beats and silence

    def _beat(self, beat: AgentBeat) -> None:
        accepting = beat.accepting and not self.finishing
        news = (self.accepting, self.free_memory) != (accepting, beat.free_memory)
        offers = self.accepting != accepting
        self.accepting, self.free_memory, self.spool_bytes = accepting, beat.free_memory, beat.spool_bytes
        self.measured_at = self._around.clock.monotonic()
        if news:
            self._around.changed(self.worker_id)
        if offers:
            self._around.desk.offers_changed(self.worker_id)
        if beat.n == 0:
            self._compare(beat)

    def _compare(self, beat: AgentBeat) -> None:
        """A difference in one beat may be a crossing; the same one in the next isn't."""
        believed = self._around.desk.live_attempts(self.worker_id)
        ours, theirs = (
            (len(believed), live_hash((run_id, number) for run_id, number in believed)),
            (beat.live_count, beat.live_hash or live_hash(())),
        )
        if ours == theirs or self._waiting:
            self._odd_beat = None
        elif self._odd_beat == (ours, theirs):
            self._around.log.warning("worker %s executes other runs than we think", self.view.name)
            self.finish(ControlBye(reason="resync"))
        else:
            self._odd_beat = (ours, theirs)

    async def probe(self, within_s: float) -> bool:
        """Is somebody there? An agent answers a numbered beat at once; any frame will do."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._probes.append(answer)
        timer = self._around.clock.timer(within_s, lambda: _settle(answer, alive=False))
        self.line.send(ControlBeat(n=1))
        try:
            return await answer
        finally:
            timer.cancel()
            self._probes.remove(answer)

    def _silent(self) -> None:
        self.down_why = f"no heartbeat for {SILENCE_S:g} s"
        self.line.abort()

    # ------------------------------------------------------------ the database's work, in order

    async def work(self) -> None:
        """The working task: until the session ends. Never cancelled, as that may fall into a transaction."""
        while True:
            while self.current and not self._waiting:
                self._work.clear()
                await self._work.wait()
            if not self.current:
                return
            message, count = together(self._waiting)
            await self._patiently(message)
            for _ in range(count):
                size, _done = self._waiting.popleft()
                self._waiting_bytes -= size
            self._leave_when_finished()

    async def _patiently(self, message: FromAgent) -> None:
        """Until the database took it: it may be away for long, and nothing is acknowledged meanwhile."""
        while True:
            async with self._lock:
                if not self.current:
                    return
                try:
                    if await self._handle(message):
                        return
                except CodefyError as error:
                    self._not_ours(message, error)
                    return
                except Exception as error:
                    log_failure(self._around.log, error, "%s of worker %s failed", message.t, self.view.name)
            await self._pause()

    async def _pause(self) -> None:
        waits = [
            asyncio.ensure_future(self._around.clock.delay(RETRY_S)),
            asyncio.ensure_future(self._ended.wait()),
        ]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _handle(self, message: FromAgent) -> bool:
        """True: done with it. False: the database can't take it now."""
        desk, worker_id = self._around.desk, self.worker_id
        match message:
            case Items():
                return self._answer(await desk.items(worker_id, message))
            case Refuse():
                await desk.refused(worker_id, message)
            case WantGrant():
                await desk.want_grant(worker_id, message)
            case Report():
                await self._around.keep_report(self, message)
                self.facts, self.trust, self._reported = message.storage, message.trust, True
                await self._learned()
            case CatalogMessage():
                await self._catalog(message)
            case AgentBye():
                await self._around.left(self, message.reason)
                self.finish(ControlBye(reason="drained" if message.reason == "drained" else "done"))
        return True

    def _answer(self, answer: AckEntry | Rewind | None) -> bool:
        match answer:
            case AckEntry():
                self._acknowledge((answer,), self._around.windows.now)
            case Rewind():
                self.line.send(answer)
        return answer is not None

    def _acknowledge(self, acks: tuple[AckEntry, ...], window_bytes: int) -> None:
        changed = window_bytes != self.window_bytes
        self.window_bytes = window_bytes
        self.line.send(Ack(acks=acks, window_bytes=window_bytes if changed else None))

    def narrow(self, window_bytes: int) -> None:
        """There are more sessions now. One that was told more could fill that before its next acknowledgement."""
        if window_bytes < self.window_bytes:
            self._acknowledge((), window_bytes)

    async def _learned(self) -> None:
        """A report or the catalog came. With both that are waited for, it may get runs."""
        self._around.changed(self.worker_id)
        if self.ready:
            self._around.desk.offers_changed(self.worker_id)
        elif self._reported and not (self.wants_catalog and self._types is None):
            self.ready = True
            self._decline_unlisted()
            await self._around.desk.welcomed(self.worker_id)

    async def _catalog(self, message: CatalogMessage) -> None:
        if message.hash != self.hello.catalog_hash:
            self._bad("catalog", "not the catalog that hello named")
            return
        await self._around.keep_catalog(message)
        self._types = frozenset(message.types)
        await self._learned()

    def _not_ours(self, message: FromAgent, error: CodefyError) -> None:
        """A lease that doesn't fit, say: a fresh hello sorts it out."""
        self._around.log.warning("%s of worker %s: %s", message.t, self.view.name, error.message)
        if isinstance(message, Items):
            self.finish(ControlBye(reason="resync"))
        else:
            self.line.send(Bad(word=message.t, reason=error.message))

    # ------------------------------------------------------------ the end

    def finish(self, bye: ControlBye) -> None:
        """Say bye and close."""
        self.down_why = self.down_why or f"the connection was closed ({bye.reason})"
        self.line.finish(bye)

    def _decline_unlisted(self) -> None:
        """What was assigned before and never arrived isn't sent to an agent that only finishes its runs."""
        listed = {(one.run_id, one.attempt) for one in self.hello.attempts}
        for key in self._around.desk.live_attempts(self.worker_id) if self.finishing else ():
            if key not in listed:
                self._decline(key, self.finishing)

    def _leave_when_finished(self) -> None:
        """The last end of an agent that only finishes its runs is recorded: refused as it would have been."""
        if not (self.finishing and self.ready and self.current) or self._waiting:
            return
        if not self._around.desk.live_attempts(self.worker_id):
            self.down_why = self.down_why or self.finishing
            self.line.finish(other_version(self.finishing))

    def dispose(self) -> None:
        self.current = False
        self.reads.close()
        self._around.windows.leave(self)
        self._ended.set()
        self._work.set()
        self._silence.cancel()
        for key in list(self._expected):
            self._answered(key)
        for probe in self._probes:
            _settle(probe, alive=False)


def _settle(probe: asyncio.Future[bool], *, alive: bool) -> None:
    if not probe.done():
        probe.set_result(alive)
