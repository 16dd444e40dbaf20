"""Placing runs: look at the lines, hold a slot, prepare the files, commit the attempt, send it (T2)."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sqlalchemy.exc import SQLAlchemyError

from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.db.outages import is_outage, log_failure
from codefyui_core.errors import Busy, CodefyError
from codefyui_core.ids import RunId, WorkerId
from codefyui_core.plugin.storage import Staged
from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import AttemptView, RunStatus, RunView, RunWarning
from codefyui_core.runs.events import WarningKind
from codefyui_core.runs.queue import Candidate, Room, Waiting, look
from codefyui_core.runs.record import AttemptRecord, RunRecord, split_identity
from codefyui_core.runs.status import Cause

from .board import Board, Request
from .claiming import noting_run
from .decisions import drop, failed, place
from .desk import WorkerLink
from .fold import hash_lease
from .offers import Storages, Unserved
from .places import SERVER, Places, fell_back
from .reasons import Reasons
from .revoking import to_enrolled
from .submit import check_types
from .tasks import Tasks
from .writer import NOT_NOW, PASSING, Writer

MOST_AT_ONCE = 200
"""Runs for which one look asks where they fit; everything else gets its turn before the next."""
RETRY_S = 5.0
"""After a storage backend said that it can't prepare a run's files now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A run whose files are prepared for a place."""

    backend: str | None = None
    staged: "Staged | None" = None
    warnings: tuple[RunWarning, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A run whose attempt is committed, with all that is needed to begin it."""

    record: RunRecord
    document: JsonObject
    """Complete: SECRET values filled in, presets embedded."""
    ready: Ready
    lease: str = ""


class Dispatcher:
    """``kick`` it whenever a slot, a worker or a run changed. It looks again, once for any number of kicks."""

    def __init__(
        self,
        *,
        board: Board,
        places: Places,
        storages: Storages,
        reasons: Reasons,
        writer: Writer,
        tasks: Tasks,
        clock: AttentiveClock,
        log: logging.Logger,
        link: Callable[[str], WorkerLink | None],
        is_open: Callable[[], bool],
        waiting: Callable[[str], Awaitable[tuple[RunRecord, JsonObject] | None]],
        room: Callable[[], Room],
        send: Callable[[Placed], None],
        begin: Callable[[Placed], None],
        grace_s: float,
    ) -> None:
        self._board = board
        self._places = places
        self._storages = storages
        self._reasons = reasons
        self._writer = writer
        self._tasks = tasks
        self._clock = clock
        self._log = log
        self._link = link
        self._open = is_open
        self._waiting = waiting
        self._room = room
        self._send = send
        self._begin = begin
        self._grace_s = grace_s
        self._wake = asyncio.Event()
        self._busy_since: dict[str, float] = {}

    def kick(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._open():
                try:
                    self._look()
                except Exception:
                    self._log.exception("looking at the queue failed")
            await asyncio.sleep(0)  # whatever comes of a look goes before the next one

    def _look(self) -> None:
        lines, places = self._board.lines, self._places
        lines.keep_apart(places.claims())
        for run_id in places.held_off.lifted():
            lines.refresh(run_id)
        if places.changed():
            lines.forget_places()
        room = self._room()
        for waiting, candidates in list(places.claimed(lines)):
            chosen = room.best(waiting, candidates)
            if chosen is not None:
                room.take(waiting, chosen)
                self.take(waiting, chosen)
        found = look(lines, places.candidates, room, reach=places.reach, budget=MOST_AT_ONCE)
        for waiting, candidate in found.placed:
            self.take(waiting, candidate)
        if found.more:
            self.kick()

    def take(self, waiting: Waiting, candidate: Candidate) -> None:
        """Hold the slots and place the run beside everything else."""
        self._board.holds[waiting.run_id] = candidate.slots
        self._board.lines.discard(waiting.run_id)
        self._spend(candidate.place, spent=True)
        self._tasks.start(self._place(waiting, candidate), name=f"place {waiting.run_id}")

    def _spend(self, place_: str, *, spent: bool) -> None:
        """A one-shot agent takes one run."""
        link = self._link(place_) if place_ else None
        if link is not None and link.view.one_shot:
            key = (place_, link.incarnation)
            (self._places.spent.add if spent else self._places.spent.discard)(key)

    async def _place(self, waiting: Waiting, candidate: Candidate) -> None:
        """Whatever goes wrong, the run is placed, waits again, or has failed for a reason."""
        run_id = waiting.run_id
        request = self._board.requests.get(run_id)
        record: RunRecord | None = None
        try:
            if request is not None:
                record = await self._try(request, candidate)
        except Busy as error:
            await self._put_off(run_id, error)
        except CodefyError as error:
            if error.code in NOT_NOW or error.code == _GONE:
                await self._clock.delay(1.0 if error.code in PASSING else 0.0)
            else:
                await self._fail(run_id, error.message, _cause(error))
        except Exception as error:
            log_failure(self._log, error, "placing run %s failed", run_id)
            if isinstance(error, SQLAlchemyError) and is_outage(error):
                await self._clock.delay(1.0)
            else:
                await self._fail(run_id, f"placing it failed: {error}", Cause.REFUSED)
        finally:
            self._board.holds.pop(run_id, None)
            if record is None:
                self._spend(candidate.place, spent=False)
            if run_id in self._board.requests and run_id not in self._board.flights:
                self._board.lines.add(waiting)
            self.kick()

    async def _try(self, request: Request, candidate: Candidate) -> RunRecord | None:
        if candidate.place == SERVER:
            return await self._place_here(request, candidate)
        link = self._suited(request, candidate)
        found = await self._waiting(request.run_id)
        if found is None:
            return None
        record, document = found
        number = record.attempt + 1
        ready = await self._prepare(request, link, number)
        link = self._suited(request, candidate)  # preparing may have taken long
        lease = secrets.token_hex(16)
        worker_id, instance = split_identity(candidate.place)
        attempt = AttemptRecord(
            number=number,
            worker_id=worker_id,
            instance=instance,
            lease_hash=hash_lease(lease),
            devices=candidate.devices,
            incarnation=link.incarnation[:32],
            backend=ready.backend,
            ticket=None if ready.staged is None else ready.staged.ticket.model_dump(mode="json"),
            grant_version=0 if ready.staged is None or ready.staged.grant is None else 1,
        )
        self._board.leases[(request.run_id, number)] = lease
        decision = to_enrolled(place(request.run_id, attempt, link.view.name, ready.warnings), worker_id)
        if link.view.one_shot and not instance:
            decision = noting_run(decision, worker_id)
        placed = await self._writer.run(decision)
        if placed is None:
            self._board.leases.pop((request.run_id, number), None)
            return None
        self._send(Placed(record=placed, document=document, ready=ready, lease=lease))
        return placed

    def _suited(self, request: Request, candidate: Candidate) -> WorkerLink:
        """The worker, if the run may be sent to it now.

        Raises: CodefyError ``target.types_missing``, or that it has to wait again.
        """
        link = self._link(candidate.place)
        if link is None or not self._places.suits(link, request.needs):
            raise _gone()
        check_types(link.view.name, link.node_types, request.needs.node_types)
        return link

    async def _prepare(self, request: Request, link: WorkerLink, number: int) -> Ready:
        """Offer again, then stage. The plugin's own errors say what they mean."""
        served = self._storages.serve(request.needs.files, link.view, link.facts)
        if isinstance(served, Unserved):
            raise _gone()
        warnings = tuple(
            RunWarning(kind=WarningKind.STORAGE_FALLBACK, message=text) for text in served.fallbacks
        )
        if served.backend is None:
            return Ready(warnings=warnings)
        worker_id, instance = split_identity(link.view.id)
        attempt = AttemptView(
            run_id=RunId(request.run_id), number=number, worker_id=WorkerId(worker_id), instance=instance
        )
        staged = await self._storages.stores[served.backend].stage(run_view(request), link.view, attempt)
        return Ready(backend=served.backend, staged=staged, warnings=(*warnings, *staged.warnings))

    async def _place_here(self, request: Request, candidate: Candidate) -> RunRecord | None:
        found = await self._waiting(request.run_id)
        if found is None:
            return None
        record, document = found
        attempt = AttemptRecord(number=record.attempt + 1, worker_id=None, devices=candidate.devices)
        warnings = []
        if fell_back(request.needs.device, candidate.devices):
            text = f"this server has no {request.needs.device}; the run is on {', '.join(candidate.devices)}"
            warnings.append(RunWarning(kind=WarningKind.DEVICE_UNAVAILABLE, message=text))
        placed = await self._writer.run(place(request.run_id, attempt, None, warnings))
        if placed is not None:
            self._begin(Placed(record=placed, document=document, ready=Ready()))
        return placed

    async def _put_off(self, run_id: str, error: Busy) -> None:
        """A backend is retried for as long as a worker would be waited for."""
        since = self._busy_since.setdefault(run_id, self._clock.monotonic())
        if self._clock.monotonic() - since > self._grace_s:
            await self._fail(run_id, error.message, Cause.STORAGE)
            return
        await self._clock.delay(error.retry_after_s or RETRY_S)

    async def _fail(self, run_id: str, message: str, cause: Cause) -> None:
        try:
            await self._writer.run(drop(run_id, failed(message, cause)))
        except CodefyError as error:
            self._log.error("run %s can't be ended now (%s); it waits again", run_id, error)


_GONE = "queue.gone"


def _gone() -> CodefyError:
    return CodefyError("the worker went away", code=_GONE)


def _cause(error: CodefyError) -> Cause:
    if error.code == "storage.credentials":
        return Cause.CREDENTIALS
    return Cause.STORAGE if error.code.startswith("storage.") else Cause.REFUSED


def run_view(request: Request, status: RunStatus = RunStatus.QUEUED, worker_id: str | None = None) -> RunView:
    """A run as plugins see it."""
    return RunView(
        id=RunId(request.run_id),
        name=request.name,
        status=status,
        files=request.needs.files,
        worker_id=None if worker_id is None else WorkerId(worker_id),
    )
