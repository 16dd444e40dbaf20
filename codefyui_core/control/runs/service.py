"""Runs at the control plane, as one value: what the API asks, what links tell, how it starts and stops.

Thin: it makes the parts and hands calls on. The parts never import this module.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.db.database import Database
from codefyui_core.control.db.times import milliseconds
from codefyui_core.errors import CodefyError
from codefyui_core.ids import ArtifactId
from codefyui_core.loading import Registry
from codefyui_core.outputs import OutputStore
from codefyui_core.plugin.storage import Reading, StorageControl, StoredObject
from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import AttemptView, RunWarning
from codefyui_core.runner.api import RunStarter
from codefyui_core.runner.memory import free_memory
from codefyui_core.runs.machine import Effect, State
from codefyui_core.runs.queue import Capacity, Reason, Room
from codefyui_core.runs.record import RunRecord, split_identity
from codefyui_core.runs.sharing import Policy
from codefyui_core.runs.steps import Change
from codefyui_core.settings import ControlSettings, Install
from codefyui_core.wire.messages import (
    AckEntry,
    DeviceInfo,
    HelloAttempt,
    Items,
    Refuse,
    Rewind,
    Verdict,
    WantGrant,
)

from . import decisions
from .board import Board
from .calls import Calls
from .card_desk import CardDesk
from .cards import Cards, check_policy
from .checkout import Checkout
from .desk import Alongside, Claim, T, WorkerDirectory
from .dispatcher import Dispatcher, Placed, Ready
from .feeds import Feeds
from .fold import Fold
from .grants import Grants
from .intake import Intake
from .local import OwnRuns
from .numbers import Numbers
from .offers import Storages
from .opening import open_runs
from .outbox import Outbox
from .outputs import RecordedOutputs, WorkerReads
from .own_desk import OwnDesk, abandoning
from .peaks import Peaks
from .places import SERVER, Places
from .reading import Reader
from .reasons import LOADING, STOPPING, Reasons
from .receipts import Receipts
from .removal import Removal, nothing_to_forget
from .sent import CatalogView, Sent
from .shutdown import Shutdown
from .storing import Storing
from .submit import Judge
from .submitting import Submitting
from .tasks import Tasks
from .waits import Waits
from .worker_desk import WorkerDesk
from .writer import Writer


class RunService:
    """Implements ``RunDesk``."""

    def __init__(
        self,
        *,
        db: Database,
        catalog: Callable[[], CatalogView | None],
        workers: WorkerDirectory,
        starter: RunStarter,
        registry: Registry,
        install: Install,
        settings: ControlSettings,
        clock: AttentiveClock,
        log: logging.Logger,
        stores: Mapping[str, StorageControl[Any, Any, Any, Any]],
        reads: Callable[[str], WorkerReads | None] = lambda _worker_id: None,
        forget: Callable[[str], Awaitable[None]] = nothing_to_forget,
    ) -> None:
        """``reads`` asks a connected worker, by its id, for recorded outputs. ``forget`` is told of a run that is about
        to be removed.
        """
        self._db = db
        self._catalog = catalog
        self._settings = settings
        self._clock = clock
        self._log = log
        self._tasks = Tasks(log)
        self._placing = Tasks(log)
        self._storages = Storages(backends=registry.backends, stores=stores)
        self.writer = Writer(db, clock, log)
        self._places = Places(
            workers=workers,
            storages=self._storages,
            server_devices=self._server_devices,
            capacity=Capacity.of_settings(settings),
        )
        self.board = Board(slots_of=self._places.slots_of)
        self._peaks = Peaks(db=db, board=self.board, tasks=self._tasks, log=log, found=self._kick)
        self._cards = Cards(
            board=self.board,
            places=self._places,
            workers=workers,
            peaks=self._peaks,
            server_devices=self._server_devices,
            clock=clock,
        )
        self._card_desk = CardDesk(
            db=db,
            cards=self._cards,
            server_devices=self._server_devices,
            clock=clock,
            log=log,
            measure=free_memory,
            kick=self._kick,
        )
        self._feeds = Feeds()
        self._reasons = Reasons(
            self.board,
            workers,
            stopped=self._why_nothing_goes,
            candidates=self._places.candidates,
            room=self._room,
        )
        self._fold = Fold(self.writer, log)
        recorded = OutputStore(
            install.user_data / "run-outputs", limit_bytes=settings.run_output_store_max_mb << 20
        )
        self.outputs = RecordedOutputs(
            db=db,
            store=recorded,
            worker=reads,
            timeout_s=settings.worker_output_fetch_timeout_s,
            log=log,
        )
        self._own = OwnRuns(
            fold=self._fold,
            starter=starter,
            install=install,
            settings=settings,
            clock=clock,
            log=log,
            devices=self._server_devices,
            abandoned=abandoning(self.writer, log),
            outputs=recorded,
        )
        self._own_desk = OwnDesk(board=self.board, own=self._own, tasks=self._tasks)
        self._shutdown = Shutdown(
            db=db,
            board=self.board,
            writer=self.writer,
            feeds=self._feeds,
            own=self._own,
            placing=self._placing,
            clock=clock,
            log=log,
        )
        self._grants = Grants(
            board=self.board,
            storages=self._storages,
            writer=self.writer,
            tasks=self._tasks,
            clock=clock,
            log=log,
            link=workers.link,
        )
        grace_s = settings.worker_resume_grace_s
        calls = Calls(tasks=self._tasks, clock=clock, log=log)
        self._outbox = Outbox(
            db=db,
            writer=self.writer,
            storages=self._storages,
            calls=calls,
            tasks=self._tasks,
            clock=clock,
            log=log,
            changed=self._feeds.mark,
        )
        self._desk = WorkerDesk(
            db=db,
            board=self.board,
            writer=self.writer,
            fold=self._fold,
            receipts=Receipts(
                board=self.board,
                storages=self._storages,
                calls=calls,
                holds=self._outbox.holds,
                clock=clock,
            ),
            grants=self._grants,
            places=self._places,
            reasons=self._reasons,
            workers=workers,
            tasks=self._tasks,
            clock=clock,
            log=log,
            grace_s=grace_s,
            kick=self._kick,
            stopping=lambda: self._shutdown.ends_all,
            resend=self._resend,
        )
        self._sent = Sent(db, self.board, catalog)
        self._dispatcher = Dispatcher(
            board=self.board,
            places=self._places,
            storages=self._storages,
            reasons=self._reasons,
            writer=self.writer,
            tasks=self._placing,
            clock=clock,
            log=log,
            link=workers.link,
            is_open=lambda: self._why_nothing_goes() is None,
            waiting=self._sent.waiting,
            room=self._room,
            send=self._desk.send,
            begin=self._own_desk.begin,
            grace_s=grace_s,
        )
        self._intake = Intake(
            db=db,
            writer=self.writer,
            board=self.board,
            now_ms=lambda: milliseconds(clock),
            pins={info.distribution: info.version for info in registry.plugins},
            checkout=Checkout(install.settings.project_dir or install.root, lambda: milliseconds(clock)),
        )
        self._storing = Storing(db=db, board=self.board, writer=self.writer)
        self._waits = Waits(
            board=self.board,
            workers=workers,
            writer=self.writer,
            clock=clock,
            timeout_s=settings.worker_one_shot_queue_timeout_s,
        )
        self._removal = Removal(
            db=db,
            writer=self.writer,
            stores=stores,
            log=log,
            keep_last=settings.run_retention_keep_last,
            ask_now=self._outbox.ask_now,
            forget=(self._outbox.let_go, self.outputs.forget, forget),
        )
        self.reader = Reader(
            db=db,
            board=self.board,
            feeds=self._feeds,
            reasons=self._reasons,
            stores=stores,
            clock=clock,
            page_bytes=settings.run_events_response_cap_bytes,
        )
        self._submitting = Submitting(
            board=self.board,
            catalog=catalog,
            judge=Judge(workers, self._storages),
            intake=self._intake,
            server_devices=self._server_devices,
            install=install,
            settings=settings,
            get=self.reader.get,
            take=self._dispatcher.take,
            stopping=lambda: self._shutdown.begun,
        )
        self.numbers = Numbers(
            board=self.board,
            places=self._places,
            workers=workers,
            server_devices=self._server_devices,
            durable=settings.run_queue_durable,
        )
        self.writer.listeners += [
            self._peaks.committed,
            self._desk.committed,
            self.board.committed,
            self._feeds.committed,
            self._outbox.committed,
            self._after_commit,
        ]

    # ------------------------------------------------------------ start and stop

    async def start(self) -> None:
        """Take over what the last server left (T9). Nothing may listen before this is done."""
        self.writer.start()
        left = await open_runs(
            db=self._db,
            board=self.board,
            writer=self.writer,
            grace_s=self._settings.worker_resume_grace_s,
            durable=self._settings.run_queue_durable,
        )
        for record in self.board.flights.values():
            self._places.name_place(record.now.place, record.worker_name or "")
        self._intake.start(left.last_seq)
        self._waits.waited.update(left.waits)
        await self._outbox.start()
        await self._card_desk.load()
        await asyncio.to_thread(self.outputs.store.tidy)
        await self._db.mark_shutdown("running")
        self._tasks.start(self._dispatcher.run(), name="dispatcher")
        self._tasks.start(self._waits.run(), name="one-shot waits")
        self._tasks.start(self._card_desk.run(), name="free memory of cards")
        self._tasks.start(self._prune(), name="retention")
        self._kick()

    async def stop(self, keep: bool, grace_s: float) -> None:
        """Intent first, then its effects. ``keep``: runs on workers go on, the next start takes them over."""
        if not self._shutdown.begin(keep=keep):
            return
        try:
            await self._shutdown.end_runs(grace_s)
        finally:
            self._desk.graces.stop_all()
            await self._tasks.aclose()
            await self._placing.aclose()
            await self.writer.aclose()

    async def _prune(self) -> None:
        try:
            while await self._removal.prune() >= 1_000:
                pass
        except CodefyError as error:
            self._log.warning("old runs can't be removed now: %s", error)

    # ------------------------------------------------------------ after commits

    def _after_commit(self, changes: Sequence[Change], deleted: Sequence[str]) -> None:
        """Told by the writer, last of all listeners."""
        ended = False
        for change in changes:
            before, after = change.before, change.after
            ended |= before.state is not State.SETTLED and after.state is State.SETTLED
            if Effect.SEND_STOP in change.effects and after.now.worker_id is None:
                self._own_desk.stop(after)
            if after.state is State.SETTLED:
                self._reasons.notes.pop(after.id, None)
        if changes or deleted:
            self._kick()
        if ended and not self._shutdown.begun:
            self._tasks.start(self._prune(), name="retention")

    def _kick(self) -> None:
        self._dispatcher.kick()

    # ------------------------------------------------------------ placing

    def _server_devices(self) -> Sequence[DeviceInfo]:
        catalog = self._catalog()
        return () if catalog is None else catalog.devices

    def _why_nothing_goes(self) -> Reason | None:
        if self._shutdown.begun:
            return STOPPING
        return LOADING if self._catalog() is None else None

    def _room(self) -> Room:
        """What is free on all slots."""
        return Room(self.board.used(), self._places.capacity, self._cards.shares())

    def _resend(self, record: RunRecord, lease: str) -> None:
        self._tasks.start(self._send_again(record, lease), name=f"assign {record.id}")

    async def _send_again(self, record: RunRecord, lease: str) -> None:
        """The same attempt and lease, as nothing had begun."""
        document = await self._sent.document(record.id)
        current = self.board.flights.get(record.id)
        if current is not None and current.attempt == record.attempt and current.state is State.ASSIGNED:
            self._desk.send(Placed(record=current, document=document, ready=Ready(), lease=lease))
            if self._grants.lacking(current):
                self._grants.renew(current.id, whole=True)

    # ------------------------------------------------------------ asked by the API

    async def submit(
        self, graph: JsonObject | bytes, options: JsonObject, name: str = "", submit_id: str | None = None
    ) -> JsonObject:
        """Judge and store a run: ``{run_id, status}``. A repeated ``submit_id`` answers the run it made.

        Raises: GraphInvalid; CodefyError ``run.option_*``, ``target.*``, ``storage.*``, ``request.*``,
        ``catalog.loading``, ``server.stopping``, ``server.busy``.
        """
        return await self._submitting.submit(graph, options, name, submit_id)

    async def cancel(self, run_id: str) -> JsonObject:
        """``{run_id, status, cancelled}``: whether there was something left to stop.

        Raises: CodefyError ``run.not_found``.
        """
        status, was_active = await self.writer.run(decisions.cancel(run_id))
        return {"run_id": run_id, "status": status.value, "cancelled": was_active}

    async def delete(self, run_id: str) -> JsonObject:
        """Raises: CodefyError ``run.not_found``, ``run.active``."""
        warning = await self._removal.delete(run_id)
        answer: JsonObject = {"run_id": run_id, "deleted": True}
        return answer if warning is None else {**answer, "warning": warning}

    async def delete_artifact(self, run_id: str, artifact_id: str) -> JsonObject:
        """Raises: CodefyError ``run.not_found``, ``run.active``, ``artifact.not_found``."""
        warning = await self._removal.delete_artifact(run_id, artifact_id)
        answer: JsonObject = {"run_id": run_id, "artifact_id": artifact_id, "deleted": True}
        return answer if warning is None else {**answer, "warning": warning}

    async def artifact(self, run_id: str, artifact_id: str) -> JsonObject:
        """Raises: CodefyError ``artifact.not_found``."""
        return await self.reader.artifact(run_id, artifact_id)

    async def get(self, run_id: str) -> JsonObject:
        """Raises: CodefyError ``run.not_found``."""
        return await self.reader.get(run_id)

    async def list(
        self,
        statuses: Sequence[str] = (),
        limit: int = 50,
        offset: int = 0,
        target: str | None = None,
        worker: str | None = None,
        q: str | None = None,
    ) -> JsonObject:
        return await self.reader.list(statuses, limit, offset, target, worker, q)

    async def events(self, run_id: str, cursor: int = 0, limit: int = 500, wait_s: float = 0) -> JsonObject:
        return await self.reader.events(run_id, cursor, limit, wait_s)

    def watch(self, run_id: str, cursor: int = 0) -> AsyncIterator[JsonObject]:
        return self.reader.watch(run_id, cursor)

    def changes(self, topic: str = "runs") -> AsyncIterator[JsonObject]:
        """Rows for ``/api/stream``."""
        return self.reader.changes()

    async def metrics(self, run_id: str, name: str | None = None) -> JsonObject:
        return await self.reader.metrics(run_id, name)

    async def artifacts(self, run_id: str, kind: str | None = None) -> Sequence[JsonObject]:
        return await self.reader.artifacts(run_id, kind)

    async def artifact_reading(
        self, run_id: str, artifact_id: str, span: tuple[int, int | None] | None = None
    ) -> tuple[JsonObject, Reading]:
        return await self.reader.artifact_reading(run_id, artifact_id, span)

    # ------------------------------------------------------------ asked by storage backends

    async def attempt_of(self, run_id: str) -> AttemptView | None:
        """The attempt that holds a run now."""
        return self._storing.attempt_of(run_id)

    def lease_fits(self, run_id: str, lease: str) -> bool:
        """Is it the lease of the attempt that holds the run now?"""
        return self._storing.lease_fits(run_id, lease)

    async def record(self, attempt: AttemptView, stored: StoredObject, backend: str) -> ArtifactId:
        """List an artifact; the same key again changes nothing.

        Raises: CodefyError ``run.attempt_over``.
        """
        return await self._storing.record(attempt, stored, backend)

    async def stored(self, run_id: str, backend: str) -> Sequence[StoredObject]:
        return await self._storing.stored(run_id, backend)

    async def warn(self, run_id: str, warning: RunWarning) -> None:
        """Add a ``run_warning`` to a run that isn't over."""
        await self.writer.run(decisions.warn(run_id, warning))

    # ------------------------------------------------------------ cards and numbers

    def policy_of(self, worker_id: str, device: str) -> str:
        """How runs are admitted to a card of a worker, or of the server (empty). One that both offer is the
        server's.
        """
        return self._cards.policy(self._places.slots_of(worker_id, (device,))[0]).value

    def free_here(self, device: str) -> int | None:
        """Bytes of one of the server's own shared cards, as measured last."""
        return self._cards.free_here(device)

    async def set_own_policy(self, device: str, policy: Policy) -> JsonObject:
        """How runs are admitted to one of the server's own cards.

        Raises: CodefyError ``device.not_found``, ``request.invalid``.
        """
        check_policy("this server", self._server_devices(), device, policy)
        await self.set_policy(SERVER, device, policy)
        return {"name": "server", "device": device, "policy": policy.value}

    async def set_policy(self, worker_id: str, device: str, policy: Policy) -> None:
        """Count or memory, for one card. A policy that is set through an instance is its worker's; of a card that
        the server offers too, the server's.
        """
        holder, own_device = self._places.slots_of(worker_id, (device,))[0]
        await self._card_desk.set_policy(split_identity(holder)[0], own_device, policy)

    def committed(self) -> tuple[int, float, int]:
        """Events, seconds spent in commits, commits; since the start."""
        return self.writer.events, self.writer.commit_seconds, self.writer.commits

    @property
    def writable(self) -> bool:
        """The database takes what is written: a clock that counts duty time asks."""
        return self.writer.healthy

    def catalog_changed(self) -> None:
        self._places.forget()
        self._kick()

    def stores_changed(self) -> None:
        self._places.forget()
        self._outbox.look_again()
        self._grants.look_again()
        self._kick()

    # ------------------------------------------------------------ asked by links

    async def hello(
        self, worker_id: str, incarnation: str, attempts: Sequence[HelloAttempt]
    ) -> tuple[Verdict, ...]:
        return await self._desk.hello(worker_id, incarnation, attempts)

    async def welcomed(self, worker_id: str) -> None:
        await self._desk.welcomed(worker_id)

    async def link_down(self, worker_id: str, why: str) -> None:
        await self._desk.link_down(worker_id, why)

    async def items(self, worker_id: str, batch: Items) -> AckEntry | Rewind | None:
        return await self._desk.items(worker_id, batch)

    async def refused(self, worker_id: str, refuse: Refuse) -> None:
        await self._desk.refused(worker_id, refuse)

    async def want_grant(self, worker_id: str, want: WantGrant) -> None:
        await self._desk.want_grant(worker_id, want)

    def offers_changed(self, worker_id: str) -> None:
        self._places.forget()
        self._desk.offers_changed(worker_id)

    async def worker_removed(self, worker_id: str, name: str, alongside: Alongside[T]) -> T:
        answer = await self._desk.worker_removed(worker_id, name, alongside)
        self._cards.know(worker_id, {})
        return answer

    async def worker_rekeyed(self, worker_id: str, alongside: Alongside[T]) -> T:
        return await self._desk.worker_rekeyed(worker_id, alongside)

    def live_attempts(self, worker_id: str) -> Sequence[tuple[str, int]]:
        return self._desk.live_attempts(worker_id)

    async def check_leases(self, worker_id: str, incarnation: str, attempts: Sequence[HelloAttempt]) -> bool:
        return await self._desk.check_leases(worker_id, incarnation, attempts)

    def claim_problem(self, claim: Claim) -> str | None:
        return self._desk.claim_problem(claim)

    async def awaits(self, worker_id: str, attempts: Sequence[HelloAttempt]) -> bool:
        return await self._desk.awaits(worker_id, attempts)

    async def in_flight(self, worker_id: str) -> int:
        return await self._desk.in_flight(worker_id)
