"""Workers, as the rest of the control plane knows them: one object over the files beside it."""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Literal

from aiohttp import web
from pydantic import JsonValue

from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.db.database import Database
from codefyui_core.control.db.times import milliseconds
from codefyui_core.control.runs.cards import check_policy
from codefyui_core.control.runs.desk import KnownWorker, RunDesk, WorkerLink
from codefyui_core.errors import CodefyError
from codefyui_core.loading import Registry
from codefyui_core.plugin.connector import Invitation
from codefyui_core.plugin.storage import StorageControl
from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import WorkerChanged, WorkerEvent, WorkerEventKind, WorkerView
from codefyui_core.runs.queue import Capacity
from codefyui_core.runs.record import identity
from codefyui_core.runs.sharing import Policy
from codefyui_core.settings import ControlSettings, Install
from codefyui_core.this_machine import machine_id as this_machine
from codefyui_core.wire.messages import CatalogMessage, ControlBye, LineSettings, Report

from .actors import Actors
from .catalogs import Own
from .enroll import Enrolled, Enrollment, EnrollRequest, Moved
from .errors import EnrollmentRefused, WorkerNotFound
from .feed import Feed
from .rate import RateLimit
from .reads import Reads
from .reception import Reception, Room
from .refusals import Refusals
from .rows import RowMaker, read_load
from .session import Session, Surroundings
from .storage_facts import StorageFacts
from .tokens import NewToken, Tokens, command
from .unbroken import Unbroken
from .views import instance_row, instance_view, view_of
from .windows import Windows
from .workers import WorkerRow, Workers, remove

CLOSE_WITHIN_S = 3.0


class WorkerService:
    """Enrollment, admission, the connected workers and their rows. ``WorkerDirectory`` for runs.

    ``desk`` may be set after it was made; until then agents are told that the server is busy. ``stores`` are
    the control halves of the storage backends that have started.
    """

    def __init__(
        self,
        *,
        db: Database,
        desk: RunDesk | None = None,
        registry: Registry,
        catalog: Own,
        settings: ControlSettings,
        install: Install,
        clock: AttentiveClock,
        log: logging.Logger,
        version: str,
        machine_id: str | None = None,
    ) -> None:
        self.desk = desk
        self.stores: Mapping[str, StorageControl] = {}
        self.invite: Callable[[str], Awaitable[Invitation]] = _no_invitation
        """What the connector that serves an address adds to the command; set by who makes their halves."""
        self.listeners: list[Callable[[WorkerEvent], None]] = []
        """Told of what happened to workers, after it is committed."""
        self.install = install
        self._db = db
        self._registry = registry
        self._catalog = catalog
        self._settings = settings
        self._clock = clock
        self._log = log
        self._version = version
        self._machine_id = machine_id or this_machine()
        self._stopping = False
        self._feed = Feed()
        self._workers = Workers(db)
        self._enrollment = Enrollment(db, clock)
        self._limit = RateLimit(clock)
        self._refusals = Refusals(clock)
        self._windows = Windows()
        self.tokens_table = Tokens(db, clock)
        self._rows = RowMaker(
            own=catalog,
            capacity=Capacity.of_settings(settings),
            machine_id=self._machine_id,
            policy=lambda worker_id, device: self._desk().policy_of(worker_id, device),
        )
        self._actors = Actors(
            desk=self._desk, clock=clock, log=log, changed=self._feed.changed, gone=self._gone
        )
        self._storage = StorageFacts(registry, lambda: self.stores, log)
        self._unbroken = Unbroken(log)
        self._reception = Reception(self._room())

    def _room(self) -> Room:
        return Room(
            db=self._db,
            workers=self._workers,
            actors=self._actors,
            refusals=self._refusals,
            clock=self._clock,
            log=self._log,
            version=self._version,
            machine_id=self._machine_id,
            settings=LineSettings(grace_s=self._settings.worker_resume_grace_s),
            desk=self._desk,
            open=lambda: self.desk is not None and not self._stopping,
            around=self._around,
            backend_data=self._storage.welcome,
            connected=self._connected,
        )

    def _around(self) -> Surroundings:
        return Surroundings(
            desk=self._desk(),
            clock=self._clock,
            log=self._log,
            own=self._catalog,
            keep_report=self._keep_report,
            keep_catalog=self._keep_catalog,
            changed=self._feed.changed,
            left=self._left,
            windows=self._windows,
        )

    def _desk(self) -> RunDesk:
        assert self.desk is not None
        return self.desk

    # ------------------------------------------------------------ enrollment

    async def enroll(
        self,
        token: str,
        name: str | None,
        nonce: str,
        machine_id: str,
        platform: str,
        address: str,
        link_id: str | None = None,
    ) -> JsonObject:
        """Trade a token for a credential. Refusals are counted for the address, or for the link.

        Raises: EnrollmentRefused, TooManyAttempts, BadRequest.
        """
        place = f"link {link_id}" if link_id else address
        self._limit.check(place)
        request = EnrollRequest(
            token=token,
            name=name,
            nonce=nonce,
            machine_id=machine_id[:128],
            platform=platform[:200],
            link_id=link_id,
        )
        enrolled = await self._unbroken.run(self._enroll(request, place), name=f"enroll {name}")
        return {
            "credential": enrolled.credential,
            "worker_id": enrolled.worker_id,
            "name": enrolled.name,
            "db_id": self._db.db_id,
        }

    async def _enroll(self, request: EnrollRequest, place: str) -> Enrolled:
        """Once begun it is carried through, whatever becomes of the caller."""
        try:
            enrolled = await self._trade(request)
        except EnrollmentRefused as error:
            self._limit.refused(place)
            self._log.warning("refused an enrollment from %s: %s", place, error.message)
            raise
        await self._after_enrollment(enrolled, request.link_id)
        return enrolled

    async def _trade(self, request: EnrollRequest) -> Enrolled:
        """Where a credential changes, what executes with the older one ends in the same transaction. That of a
        repeated request does, too: two agents may have asked with one request.
        """
        while True:
            worker_id = await self._enrollment.whose(request)
            with suppress(Moved):
                if worker_id is None:
                    return await self._enrollment.enroll(request)
                async with self._actors.revoking(worker_id):
                    spend = partial(self._enrollment.spend, request=request, worker_id=worker_id)
                    return await self._desk().worker_rekeyed(worker_id, spend)

    async def _after_enrollment(self, enrolled: Enrolled, link_id: str | None) -> None:
        self._log.info(
            "worker %s %s", enrolled.name, "has a new credential" if enrolled.rekeyed else "enrolled"
        )
        self._feed.changed(enrolled.worker_id)
        row = await self._workers.get(enrolled.worker_id)
        if row is not None:
            kind = WorkerEventKind.REKEYED if enrolled.rekeyed else WorkerEventKind.ENROLLED
            self._tell(kind, self._view(row), through=link_id)

    async def make_token(
        self,
        valid_s: float | None = None,
        uses: int | None = None,
        worker: str | None = None,
        address: str | None = None,
        control_url: str = "",
    ) -> JsonObject:
        """A token and the command that uses it. ``worker``: re-keys that one. ``address``: what agents dial;
        else ``control_url``, as the caller reached us.

        Raises: WorkerNotFound, BadRequest.
        """
        if worker is not None:
            worker = (await self._known(worker)).name
        dialled = address or control_url
        invitation = await self.invite(dialled)
        asked = NewToken(worker=worker)
        asked = NewToken(
            valid_s=asked.valid_s if valid_s is None else valid_s,
            uses=asked.uses if uses is None else uses,
            worker=worker,
        )
        token, row = await self.tokens_table.make(asked)
        line = command(dialled, token, name=worker, options=invitation.options)
        return {**row, "token": token, "command": line, "notes": _notes(invitation)}

    async def invitation(self, address: str) -> JsonObject:
        """What the command for an agent that dials this address gets, and what to know beside it; no token is made."""
        invitation = await self.invite(address)
        return {"address": address, "options": list(invitation.options), "notes": _notes(invitation)}

    async def tokens(self) -> list[JsonObject]:
        return await self.tokens_table.list()

    async def revoke_token(self, token_id: str) -> JsonObject:
        return await self.tokens_table.revoke(token_id)

    async def hide_token(self, token_id: str) -> None:
        await self.tokens_table.hide(token_id)

    # ------------------------------------------------------------ connections

    async def authenticate(self, credential: str) -> WorkerRow:
        """Whose credential it is.

        Raises: CodefyError ``auth.worker_unknown``, ``auth.worker_revoked``.
        """
        return await self._workers.authenticate(credential)

    async def authenticate_view(self, credential: str) -> WorkerView:
        """The same, as plugins and routes see a worker."""
        return self._view(await self.authenticate(credential))

    async def counts(self) -> dict[str, int]:
        """Workers by status."""
        return dict(Counter(str(row["status"]) for row in await self.worker_rows()))

    def unacknowledged_bytes(self) -> int:
        """Of frames that came and aren't committed yet."""
        return sum(session.waiting_bytes for session in self._actors.sessions())

    async def handle(self, request: web.Request, *, link_id: str | None = None) -> web.StreamResponse:
        """The handler of ``/ws/worker``, behind the Host guard."""
        return await self._reception.handle(request, link_id=link_id)

    def refuse_newcomers(self) -> None:
        """The server is stopping: agents that connect from now on are told ``busy``."""
        self._stopping = True

    async def stop(
        self,
        reason: Literal["shutdown", "restart"] = "shutdown",
        back_within_s: float | None = None,
    ) -> None:
        """Say bye to everybody and wait until their lines are closed, 6 s at most."""
        self.refuse_newcomers()
        await self._unbroken.wait(CLOSE_WITHIN_S)
        left = self._actors.leave()
        for session in left:
            session.finish(ControlBye(reason=reason, back_within_s=back_within_s))
        await self._workers.seen(
            [session.worker_id for session in left if not session.hello.instance], milliseconds(self._clock)
        )
        await self._reception.close(CLOSE_WITHIN_S)

    # ------------------------------------------------------------ as runs see it

    def live(self) -> Sequence[WorkerLink]:
        return tuple(self._actors.sessions())

    def link(self, worker_id: str) -> WorkerLink | None:
        return self._actors.session(worker_id)

    def reads(self, worker_id: str) -> Reads | None:
        """What asks the worker for recorded outputs; None while it isn't connected."""
        session = self._actors.session(worker_id)
        return None if session is None else session.reads

    async def by_name(self, name: str) -> KnownWorker | None:
        base, _, instance = name.partition(".")
        row = await self._workers.by_name(base)
        if row is None:
            return None
        session = self._actors.session(identity(row.id, instance))
        if session is not None:
            return KnownWorker(
                view=session.view,
                devices=session.devices,
                facts=session.facts or ({} if instance else row.facts),
                node_types=session.node_types,
            )
        if instance:
            view = instance_view(view_of(row, None, server_machine_id=self._machine_id), instance)
            return KnownWorker(view=view, devices=(), facts={}, node_types=None)
        types = None if row.catalog_hash is None else await self._types(row.catalog_hash)
        return KnownWorker(view=self._view(row), devices=row.devices, facts=row.facts, node_types=types)

    async def _types(self, catalog_hash: str) -> frozenset[str] | None:
        own = self._catalog()
        if own is not None and own.definitions.hash == catalog_hash:
            return frozenset(own.definitions.nodes)
        known = await self._workers.catalog(catalog_hash)
        return None if known is None else frozenset(known)

    # ------------------------------------------------------------ the panel

    async def list(self) -> JsonObject:
        """``GET /api/workers``."""
        return {"workers": [*await self.worker_rows()], "refused": [*self._refusals.rows()]}

    async def worker_rows(self) -> Sequence[JsonObject]:
        """A row a worker, by name."""
        rows = await self._workers.all()
        async with self._db.read() as connection:
            load = await read_load(connection)
        hashes = {row.catalog_hash for row in rows if row.catalog_hash is not None}
        found = {hashed: await self._types(hashed) for hashed in hashes}
        types = {hashed: names for hashed, names in found.items() if names is not None}
        now_ms = milliseconds(self._clock)
        listed: list[tuple[WorkerRow, Session | None]] = []
        for row in rows:
            listed.append((row, self._actors.session(row.id)))
            listed += ((instance_row(row, one), one) for one in self._actors.instances(row.id))
        return [
            self._rows.row(row, session, load, types=types, fields=self._fields(row, session), now_ms=now_ms)
            for row, session in listed
        ]

    def _fields(self, row: WorkerRow, session: Session | None) -> JsonObject:
        if session is None:
            return self._storage.fields(self._view(row), row.facts)
        return self._storage.fields(session.view, session.facts)

    def changes(self) -> AsyncIterator[JsonObject]:
        """All rows, then each that changed, for ``/api/stream``."""
        return self._feed.rows(self.worker_rows)

    async def remove(self, name: str) -> JsonObject:
        """In one transaction: revoke its credential, end and fail its runs, free its name. Then tell its agents.
        Once begun it is carried through, whatever becomes of the caller.

        Raises: WorkerNotFound; CodefyError ``server.busy``.
        """
        return await self._unbroken.run(self._remove(name), name=f"remove {name}")

    async def _remove(self, name: str) -> JsonObject:
        row = await self._known(name)
        async with self._actors.revoking(row.id):
            if await self._workers.get(row.id) is None:
                raise _nobody(name)  # another call was faster
            gone = partial(remove, worker_id=row.id, at_ms=milliseconds(self._clock))
            await self._desk().worker_removed(row.id, row.name, gone)
        self._actors.forget(row.id)
        self._feed.changed(row.id)
        self._log.info("worker %s was removed", row.name)
        self._tell(WorkerEventKind.REMOVED, self._view(row), through=None)
        return {"name": row.name, "removed": True}

    async def drain(self, name: str, *, drained: bool) -> JsonObject:
        """Give it no new runs, or give it some again; what it executes goes on. It stays so until it is
        changed, whichever side is started anew.

        Raises: WorkerNotFound.
        """
        worker_id = (await self._known(name)).id
        async with self._actors.held(worker_id) as sessions:
            # A hello on its way in would seat what it read before.
            row = await self._workers.update(worker_id, drained=drained)
            for session in sessions:
                session.view = replace(session.view, drained=drained)
        self._desk().offers_changed(row.id)
        self._feed.changed(row.id)
        self._log.info("worker %s is %s", row.name, "drained" if drained else "no longer drained")
        kind = WorkerEventKind.DRAINED if drained else WorkerEventKind.UNDRAINED
        self._tell(kind, self._view(row), through=None)
        return {"name": row.name, "drained": drained}

    async def set_policy(self, name: str, device: str, policy: Policy) -> JsonObject:
        """How runs are admitted to one card of a worker from now on: by count, or by free memory. What is set
        through an instance holds for its worker and all instances.

        Raises: WorkerNotFound; CodefyError ``device.not_found``, ``request.invalid``.
        """
        base, _, instance = name.partition(".")
        row = await self._known(base)
        holder = identity(row.id, instance)
        session = self._actors.session(holder)
        check_policy(name, row.devices if session is None else session.hello.devices, device, policy)
        await self._desk().set_policy(holder, device, policy)
        self._feed.changed(row.id)
        self._log.info("%s of worker %s admits runs by %s", device, name, policy.value)
        return {"name": name, "device": device, "policy": policy.value}

    async def _known(self, name: str) -> WorkerRow:
        row = await self._workers.by_name(name)
        if row is None:
            raise _nobody(name)
        return row

    # ------------------------------------------------------------ what sessions ask for

    async def _keep_report(self, session: Session, report: Report) -> None:
        if session.hello.instance:
            return  # the worker's own agent may offer something else
        await self._workers.update(
            session.worker_id,
            facts=self._storage.readable(session, report.storage),
            trust=report.trust,
            last_seen=milliseconds(self._clock),
        )

    async def _keep_catalog(self, message: CatalogMessage) -> None:
        await self._workers.keep_catalog(message.hash, message.types, milliseconds(self._clock))

    async def _connected(self, session: Session) -> None:
        self._log.info("worker %s is connected (session %d)", session.view.name, session.number)
        through = session.view.link_id
        self._tell(WorkerEventKind.CONNECTED, session.view, through=through)

    async def _gone(self, session: Session) -> None:
        if session.hello.instance:
            view = replace(session.view, connected=False)
            self._tell(WorkerEventKind.DISCONNECTED, view, through=None)
            return
        with suppress(CodefyError):  # it was removed meanwhile
            row = await self._workers.update(session.worker_id, last_seen=milliseconds(self._clock))
            self._tell(WorkerEventKind.DISCONNECTED, self._view(row), through=None)

    async def _left(self, session: Session, reason: str) -> None:
        await self._actors.down_locked(session, f"the agent left ({reason})")

    def _view(self, row: WorkerRow) -> WorkerView:
        session = self._actors.session(row.id)
        hello = None if session is None else session.hello
        return view_of(row, hello, server_machine_id=self._machine_id)

    def _tell(self, kind: WorkerEventKind, view: WorkerView, *, through: str | None) -> None:
        event = WorkerEvent(kind=kind, worker=view, through=view.link_id if through else None)
        for listener in self.listeners:
            listener(event)
        self._registry.observe(WorkerChanged(event=event, at=self._clock.now()))


def _nobody(name: str) -> WorkerNotFound:
    return WorkerNotFound(f"There is no worker named {name}. See: cdui workers list")


async def _no_invitation(address: str) -> Invitation:
    return Invitation()


def _notes(invitation: Invitation) -> list[JsonValue]:
    return [{"text": note.text, "command": note.command, "value": note.value} for note in invitation.notes]
