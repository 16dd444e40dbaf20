"""Credentials that go with a run's storage ticket: renewed while its attempt lives, kept in memory alone."""

import logging
from collections.abc import Callable

from codefyui_core.clocks import AttentiveClock, Timer
from codefyui_core.errors import CodefyError, StorageProblem
from codefyui_core.plugin.storage import Grant
from codefyui_core.plugin.values import JsonObject
from codefyui_core.runs.record import RunRecord
from codefyui_core.runs.steps import Draft
from codefyui_core.wire.messages import GrantMessage

from .assignments import served
from .board import Board
from .decisions import EXECUTING, Decision
from .desk import WorkerLink
from .offers import Storages
from .tasks import Tasks
from .unit import Unit
from .writer import NOT_NOW, PASSING, Writer

RETRY_S = 30.0
Key = tuple[str, int]


def revealed(grant: Grant | None) -> JsonObject | None:
    """As it is sent: the only place where secret fields leave their stars."""
    if grant is None:
        return None
    dumped: JsonObject = grant.model_dump(mode="json", context={"reveal": True})
    return dumped


class Grants:
    """Renews what is due, and what an agent or a restart lost."""

    def __init__(
        self,
        *,
        board: Board,
        storages: Storages,
        writer: Writer,
        tasks: Tasks,
        clock: AttentiveClock,
        log: logging.Logger,
        link: Callable[[str], WorkerLink | None],
    ) -> None:
        self._board = board
        self._storages = storages
        self._writer = writer
        self._tasks = tasks
        self._clock = clock
        self._log = log
        self._link = link
        self._timers: dict[Key, Timer] = {}
        self._given: set[Key] = set()
        """Attempts whose agent has a grant of this process."""
        self._missed: set[str] = set()
        """Runs whose backend wasn't on when they were to get one."""

    def given(self, record: RunRecord, grant: Grant | None) -> None:
        """A grant went out with the assignment, or by a renewal."""
        key = (record.id, record.attempt)
        self.forget(key)
        self._given.add(key)
        if grant is not None and grant.renew_in_s is not None:
            self._timers[key] = self._clock.timer(grant.renew_in_s, lambda: self.renew(record.id))

    def forget(self, key: Key) -> None:
        self._given.discard(key)
        self._missed.discard(key[0])
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def lacking(self, record: RunRecord) -> bool:
        """Its agent holds none that this process has issued."""
        return record.now.backend is not None and (record.id, record.attempt) not in self._given

    def renew(self, run_id: str, *, whole: bool = False) -> None:
        """Issue the next grant in the background. ``whole``: send backend and ticket with it."""
        self._tasks.start(self._renew(run_id, whole=whole), name=f"grant {run_id}")

    def look_again(self) -> None:
        """A backend may be on that wasn't: after a start of the server, agents can be back before it."""
        missed, self._missed = self._missed, set()
        for run_id in missed:
            self.renew(run_id, whole=True)

    async def _renew(self, run_id: str, *, whole: bool) -> None:
        record = self._board.flights.get(run_id)
        if record is None or record.state not in EXECUTING:
            return
        at = served(self._board, self._storages, record)
        if at is None:
            if record.now.backend is not None:
                self._missed.add(run_id)
            return
        try:
            grant = await at.store.renew(at.given)
            after = await self._writer.run(_next_version(run_id, record.attempt))
        except CodefyError as error:
            if error.code in NOT_NOW - PASSING:
                return  # the next server issues grants to all
            if not isinstance(error, StorageProblem) and error.code not in PASSING:
                raise
            self._log.warning("run %s: its storage grant can't be renewed: %s", run_id, error)
            key = (record.id, record.attempt)
            self._timers[key] = self._clock.timer(RETRY_S, lambda: self.renew(run_id, whole=whole))
            return
        if after is None:
            return
        self.given(after, grant)
        link = self._link(after.now.place)
        if link is not None:
            link.send(_message(after, grant, whole=whole))


def _message(record: RunRecord, grant: Grant | None, *, whole: bool) -> GrantMessage:
    now = record.now
    return GrantMessage(
        run_id=record.id,
        attempt=now.number,
        version=now.grant_version,
        grant=revealed(grant),
        backend=now.backend if whole else None,
        ticket=now.ticket if whole else None,
    )


def _next_version(run_id: str, attempt: int) -> Decision:
    async def decide(unit: Unit) -> RunRecord | None:
        record = await unit.load(run_id)
        if record is None or record.attempt != attempt or record.state not in EXECUTING:
            return None
        draft = Draft(before=record, at_ms=unit.at_ms)
        draft.set_attempt(grant_version=record.now.grant_version + 1)
        return await unit.save(draft.done())

    return decide
