"""All attempts of an agent: what hello lists, and what becomes of each message."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from codefyui_core.plugin.values import JsonObject
from codefyui_core.runs.status import StopReason
from codefyui_core.wire.codec import live_hash
from codefyui_core.wire.messages import (
    AckEntry,
    Assign,
    AttemptKey,
    GrantMessage,
    HelloAttempt,
    ItemKind,
    Refuse,
    Rewind,
    Stop,
    Verdict,
    VerdictKind,
)

from . import folder
from .aside import KEEP_DAYS, Asides
from .attempts import Attempt
from .carrying.grants import Grants
from .disk import Disk
from .done import Done
from .driver import Driver
from .equipment import Equipment
from .folder import Head, Owner
from .lives import Lives
from .machine import STOP_GRACE_S, Effect, State
from .one_run import OneRun
from .outgoing import Outgoing
from .places import Places
from .recovering import Recovering
from .refusing import lacks, refusal
from .republishing import Republishing
from .retention import prune_runs
from .spool import Spool
from .stream import Stream, item

TIDY_EVERY_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Beat:
    """What beats say of the attempts."""

    live_count: int
    live_hash: str
    spool_bytes: int


class Holdings:
    """Attempts by key. ``refuse`` sends a refusal; ``news`` wakes the sender. ``one``: no more than that run is
    taken. ``heir``: who left spools here is known to be dead. ``keep_runs``: how many folders of runs that are over
    stay; negative: all.
    """

    def __init__(
        self,
        *,
        places: Places,
        owner: Owner,
        equipment: Callable[[], Equipment],
        refuse: Callable[[Refuse], None],
        news: Callable[[], None],
        log: logging.Logger,
        disk: Disk | None = None,
        one: OneRun | None = None,
        heir: bool = False,
        keep_runs: int = -1,
    ) -> None:
        self._places = places
        self._owner = owner
        self._equipment = equipment
        self._refuse = refuse
        self._news = news
        self._log = log
        self._disk = disk or Disk()
        self._one = one
        self._heir = heir
        self._keep_runs = keep_runs
        self._attempts: dict[tuple[str, int], Attempt] = {}
        self._lives = Lives()
        self._tasks: set[asyncio.Task[None]] = set()
        self.outgoing = Outgoing(self._attempts)
        self._done = Done(places.spools / "done")
        self._asides = Asides(places.spools, places.set_aside)
        self._tidy_at = 0.0
        self._worker_id = ""
        self._db_id = ""
        self._grace_s = 300.0
        self.stopping: StopReason | None = None
        self.draining = False
        self.drained = asyncio.Event()
        """Nothing more is taken, and what was here is delivered."""

    # ------------------------------------------------------------ what there is

    async def recover(self) -> None:
        """Take over what processes before left."""
        await self._tidy()
        recovering = Recovering(
            places=self._places,
            owner=self._owner,
            heir=self._heir,
            disk=self._disk,
            equipment=self._equipment(),
            news=self._news,
            effects=self._effects,
            log=self._log,
        )
        async for attempt in recovering.attempts():
            self._add(attempt)
        await self._prune()

    def listed(self) -> tuple[HelloAttempt, ...]:
        """For hello: memory and disk together."""
        return tuple(attempt.listed() for attempt in self._attempts.values())

    def beat(self) -> Beat:
        if self._asides.wall() >= self._tidy_at:
            self._spawn(self._tidy())
        live = [one.key for one in self._attempts.values() if one.live]
        hashed = live_hash((key.run_id, key.attempt) for key in live)
        return Beat(len(live), hashed, self.spool_bytes)

    @property
    def accepting(self) -> bool:
        """A run may be sent here."""
        free = self._one is None or self._one.taken is None
        return self.stopping is None and not self.draining and free

    def find(self, key: AttemptKey) -> Attempt | None:
        return self._attempts.get((key.run_id, key.attempt))

    @property
    def spool_bytes(self) -> int:
        return sum(one.size for one in self._attempts.values())

    @property
    def executing(self) -> Sequence[Attempt]:
        over = {State.ENDED, State.GONE}
        return [one for one in self._attempts.values() if one.machine.state not in over]

    @property
    def undelivered(self) -> Sequence[Attempt]:
        return [one for one in self._attempts.values() if one.live]

    # ------------------------------------------------------------ the line

    def disconnected(self) -> None:
        for attempt in self._attempts.values():
            attempt.disconnected()

    async def welcomed(self, worker_id: str, db_id: str, grace_s: float, verdicts: Iterable[Verdict]) -> None:
        self._worker_id, self._db_id, self._grace_s = worker_id, db_id, grace_s
        for verdict in verdicts:
            attempt = self._attempts.get((verdict.run_id, verdict.attempt))
            if attempt is not None:
                await self._judge(attempt, verdict)
        self._look_drained()
        self._news()

    async def _judge(self, attempt: Attempt, verdict: Verdict) -> None:
        attempt.kept = verdict.kind is VerdictKind.KEEP
        if attempt.path is not None:
            await asyncio.to_thread(partial(self._asides.mark, attempt.path, kept=attempt.kept))
        match verdict.kind:
            case VerdictKind.RESUME:
                await attempt.resume(verdict.position, verdict.stop)
            case VerdictKind.LATE:
                self._log.warning("run %s is over at the control plane; it is stopped", verdict.run_id)
                await attempt.end_late(verdict.position)
            case VerdictKind.DISCARD:
                self._log.info("run %s is settled (%s)", verdict.run_id, verdict.recorded or "unknown there")
                attempt.discard(verdict.recorded)
                if attempt.machine.state is State.PUBLISHING and _key(attempt) not in self._lives:
                    await self._let_go(attempt)
            case VerdictKind.KEEP:
                self._log.warning(
                    "run %s belongs to another database: its events aren't sent, and kept for %d days in %s",
                    verdict.run_id,
                    KEEP_DAYS,
                    attempt.path,
                )

    def acked(self, entries: Iterable[AckEntry]) -> None:
        for entry in entries:
            attempt = self._attempts.get((entry.run_id, entry.attempt))
            if attempt is not None:
                attempt.acked(entry.seq, entry.recorded)
        self._news()

    def rewind(self, message: Rewind) -> None:
        attempt = self._attempts.get((message.run_id, message.attempt))
        if attempt is not None:
            attempt.rewind(message.position)
        self._news()

    def stop(self, message: Stop) -> None:
        attempt = self._attempts.get((message.run_id, message.attempt))
        if attempt is not None:
            self._log.info("run %s is asked to stop (%s)", message.run_id, message.reason.value)
            attempt.stop(message.reason, message.grace_s)

    def granted(self, message: GrantMessage) -> None:
        """New credentials; kept until a session is there that takes them."""
        key = (message.run_id, message.attempt)
        attempt, driver = self._attempts.get(key), self._lives.driver(key)
        if attempt is not None and attempt.grants.came(message) and driver is not None:
            self._spawn(driver.renewed())

    def lease(self, run_id: str, number: int) -> str | None:
        """What proves to the control plane that this agent may speak for the attempt."""
        attempt = self._attempts.get((run_id, number))
        return None if attempt is None else attempt.head.lease

    async def tell(self, run_id: str, number: int, backend: str, message: JsonObject) -> None:
        """A backend's message, on disk when this returns.

        Raises: KeyError for an attempt that is over.
        """
        stream = self._attempts[run_id, number].stream
        if stream is None:
            raise KeyError(run_id)
        told = item(ItemKind.TOLD, {"backend": backend, "message": message})
        await stream.durable(await stream.append(ItemKind.TOLD, told, must_sync=True))

    # ------------------------------------------------------------ a new run

    def assign(self, message: Assign) -> None:
        """Take it, or refuse it. Listed in hello from now on."""
        key = (message.run_id, message.attempt)
        if key in self._attempts:
            self._log.info("run %s was assigned again; it is here already", message.run_id)
            return
        refused = self._refusal(message)
        if refused is not None:
            self._log.warning("refused run %s: %s", message.run_id, refused.detail)
            self._refuse(refused)
            return
        head = Head(
            db_id=message.db_id,
            worker_id=self._worker_id,
            run_id=message.run_id,
            attempt=message.attempt,
            lease=message.lease,
            devices=message.devices,
            grace_s=self._grace_s,
            backend=message.backend,
        )
        attempt = Attempt(head=head, path=None, stream=None, effects=self._effects, log=self._log)
        attempt.grants = Grants.of(message)
        attempt.joined()
        self._add(attempt)
        if self._one is not None:
            self._one.take(message)
        self._lives.begin(key, self._live(attempt, message), f"run {message.run_id}")

    def _refusal(self, message: Assign) -> Refuse | None:
        if self.stopping is not None:
            return refusal(message, "stopping", "the agent is stopping", retry=True)
        if self.draining:
            return refusal(message, "draining", "the agent stops after the runs that it has", retry=True)
        if not self.accepting:
            return refusal(message, "busy", "this one-shot agent has its run already", retry=True)
        if self._done.has(message, message.lease):
            return refusal(message, "busy", "this attempt has run here already")
        return lacks(message, self._equipment())

    async def _live(self, attempt: Attempt, message: Assign) -> None:
        key = (message.run_id, message.attempt)
        try:
            await self._open_spool(attempt)
        except OSError as error:
            self._forget(key)
            self._lives.end(key)
            self._tell_ended(attempt)
            detail = f"no room for its events: {error}"
            self._refuse(Refuse(run_id=key[0], attempt=key[1], code="disk_full", detail=detail))
            return
        driver = Driver(attempt, message, self._worker_id, self._equipment(), self._log)
        self._log.info("run %s was received", message.run_id)
        await self._lives.drive(key, driver)

    def _go_on(self, attempt: Attempt) -> None:
        """With the files of one that a process before this one left."""
        key = _key(attempt)
        self._log.info("run %s: its files are delivered", key[0])
        driver = Republishing(attempt, self._equipment(), self._log)
        self._lives.take(key, driver)
        self._lives.begin(key, self._lives.drive(key, driver), f"files of run {key[0]}")

    async def _open_spool(self, attempt: Attempt) -> None:
        path = await asyncio.to_thread(folder.make, self._places.spools, attempt.head, self._owner)
        spool = await asyncio.to_thread(partial(Spool, path, disk=self._disk))
        attempt.path, attempt.stream = path, Stream(spool, news=self._news, log=self._log)
        await asyncio.to_thread(attempt.stream.keep_reserve)
        attempt.stream.start()

    # ------------------------------------------------------------ the end

    def _effects(self, attempt: Attempt, effects: Iterable[Effect]) -> None:
        effects = list(effects)
        driver = self._lives.driver(_key(attempt))
        if driver is not None:
            driver.do(effects)
        elif Effect.PUBLISH in effects:
            self._go_on(attempt)
        if Effect.REMOVE in effects:
            self._spawn(self._let_go(attempt))
        self._news()

    async def _let_go(self, attempt: Attempt) -> None:
        """Its folder goes; a stray assign of it starts nothing any more."""
        key = _key(attempt)
        await self._lives.over(key)
        try:
            await asyncio.to_thread(self._done.add, attempt.key, attempt.head.lease)
        except OSError as error:
            self._log.warning(
                "that run %s is done can only be remembered until the agent ends: %s", key[0], error
            )
        self._forget(key)
        if attempt.stream is not None:
            await attempt.stream.aclose()
        if attempt.path is not None:
            await self._put_away(attempt.path, aside=attempt.set_aside)
        await self._prune()
        self._log.info("run %s is done here (%s)", key[0], attempt.recorded or "not recorded")
        self._tell_ended(attempt)
        self._news()

    async def _put_away(self, path: Path, *, aside: bool) -> None:
        if not aside:
            await asyncio.to_thread(folder.remove, path)
            return
        where = await asyncio.to_thread(self._asides.put, path)
        text = "the control plane doesn't know the run: its events are kept for %d days in %s"
        self._log.warning(text, KEEP_DAYS, where)
        await self._tidy()

    async def _tidy(self) -> None:
        """Delete what was set aside for long enough, and the oldest of too much."""
        self._tidy_at = self._asides.wall() + TIDY_EVERY_S
        busy = {one.path for key, one in self._attempts.items() if key in self._lives}
        for over in await asyncio.to_thread(self._asides.overdue, busy):
            for attempt in [one for one in self._attempts.values() if one.path == over.path]:
                self._forget(_key(attempt))
                if attempt.stream is not None:
                    await attempt.stream.aclose()
            await asyncio.to_thread(folder.remove, over.path)
            text = "%s (%d bytes) was set aside for %d days, or newer ones fill their room: deleted"
            self._log.warning(text, over.path, over.size, KEEP_DAYS)

    async def _prune(self) -> None:
        await asyncio.to_thread(prune_runs, self._places, self._keep_runs, self._log)

    def _tell_ended(self, attempt: Attempt) -> None:
        if self._one is not None:
            self._one.ended(attempt.key, attempt.recorded)

    def stop_all(self, reason: StopReason, grace_s: float = STOP_GRACE_S) -> None:
        """Ask every run to stop; new ones are refused."""
        self.stopping = reason
        for attempt in self._attempts.values():
            attempt.stop(reason, grace_s)

    @property
    def writes_for_s(self) -> float:
        """How long a run that was stopped may still write what it recorded; 0 when none records."""
        records = any(driver.records_outputs for driver in self._lives.drivers)
        return self._equipment().writes_for_s if records else 0.0

    def drain(self) -> None:
        """New runs are refused from now on; ``drained`` is set when none is left to deliver."""
        self.draining = True
        self._look_drained()

    def _look_drained(self) -> None:
        if self.draining and not self.undelivered:
            self.drained.set()

    @property
    def publishing(self) -> bool:
        """The processes of a run are gone, and its files are on their way."""
        return any(
            one.machine.state is State.PUBLISHING for key, one in self._attempts.items() if key in self._lives
        )

    async def idle(self) -> None:
        """Until no run executes here any more. Who waits no longer ends none of them."""
        await self._lives.idle()

    async def aclose(self) -> None:
        """What is on disk stays for the next process."""
        await self._lives.aclose()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for attempt in self._attempts.values():
            if attempt.stream is not None:
                await attempt.stream.aclose()

    async def release(self) -> None:
        """After ``aclose``: what couldn't be delivered is any other agent's of this folder."""
        for attempt in self._attempts.values():
            if attempt.path is not None and not attempt.machine.discarded:
                await asyncio.to_thread(folder.release, attempt.path)

    def _add(self, attempt: Attempt) -> None:
        key = _key(attempt)
        self._attempts[key] = attempt
        self.outgoing.add(key)

    def _forget(self, key: tuple[str, int]) -> None:
        self._attempts.pop(key, None)
        self.outgoing.forget(key)
        self._look_drained()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _key(attempt: Attempt) -> tuple[str, int]:
    return attempt.head.run_id, attempt.head.attempt
