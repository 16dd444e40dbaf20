"""Lets agents in: from the HTTP request over hello and admission to the welcome."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count

from aiohttp import web

from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.db.database import Database
from codefyui_core.control.db.outages import log_failure
from codefyui_core.control.db.times import milliseconds
from codefyui_core.control.runs.desk import RunDesk
from codefyui_core.errors import CodefyError, status_of
from codefyui_core.plugin.values import JsonObject
from codefyui_core.runs.options import is_instance_id
from codefyui_core.runs.record import identity
from codefyui_core.wire import codec
from codefyui_core.wire.limits import HANDSHAKE_S, PROBE_S
from codefyui_core.wire.messages import (
    PROTOCOL,
    Hello,
    LineSettings,
    RefusalCode,
    Refused,
    Verdict,
    Welcome,
    WorkerIdentity,
)

from .actors import Actor, Actors
from .admission import Before, Decision, Party, Scene, decide
from .claims import Claims, claim_of
from .denials import NotAdmitted, busy, denied, held, mismatch, other_version, unreadable
from .errors import CredentialRevoked, NotEnrolled
from .line import Line, close_socket, new_socket
from .peer import Peer, peer_of
from .refusals import Refusals
from .session import Session, Surroundings
from .views import view_of
from .workers import WorkerRow, Workers

REFUSAL_HEADER = "X-CodefyUI-Refusal"
"""In every HTTP refusal of ours; a 401 or 403 without it came from a proxy."""
AT_ONCE = 64
"""Handshakes that look into the database at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What reception works with."""

    db: Database
    workers: Workers
    actors: Actors
    refusals: Refusals
    clock: AttentiveClock
    log: logging.Logger
    version: str
    machine_id: str
    settings: LineSettings
    desk: Callable[[], RunDesk]
    open: Callable[[], bool]
    """False while stopping: everybody is refused ``busy``."""
    around: Callable[[], Surroundings]
    backend_data: Callable[[Session], Awaitable[dict[str, JsonObject]]]
    connected: Callable[[Session], Awaitable[None]]
    """A session was welcomed."""
    claims: Claims = field(default_factory=Claims)


@dataclass(slots=True, kw_only=True)
class Arrival:
    """One connection on its way in."""

    worker: WorkerRow
    credential: str
    peer: Peer
    line: Line
    hello: Hello | None = None
    session: Session | None = None
    mismatch: str = ""
    """It has another version than we, in words."""

    @property
    def said(self) -> Hello:
        assert self.hello is not None
        return self.hello

    @property
    def place(self) -> str:
        """The identity that it asks for."""
        return identity(self.worker.id, self.said.instance)

    @property
    def name(self) -> str:
        return identity(self.worker.name, self.said.instance)


class Reception:
    """The handler of ``/ws/worker``."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._numbers = count(1)
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._asking = asyncio.Semaphore(AT_ONCE)
        self._serving: dict[asyncio.Task[None], Arrival] = {}

    async def close(self, within_s: float) -> None:
        """Wait until every connection is done with the database; who hasn't been admitted is let go."""
        for arrival in self._serving.values():
            if arrival.session is None:
                arrival.line.abort()
        if self._serving:
            await asyncio.wait(self._serving, timeout=within_s)

    # ------------------------------------------------------------ the HTTP step

    async def handle(self, request: web.Request, *, link_id: str | None = None) -> web.StreamResponse:
        """``link_id``: the link whose listener it came in by, which lets in its own worker alone."""
        peer = peer_of(request)
        try:
            credential = credential_of(request)
            # A thousand that come back at once leave connections of the database to everybody else.
            async with self._asking:
                worker = await self._authenticate(credential, peer)
        except CodefyError as error:
            return _refusal(error)
        if link_id is not None and worker.link_id != link_id:
            return _refusal(NotEnrolled("That worker doesn't belong to this tunnel."))
        socket = new_socket()
        await socket.prepare(request)
        line = Line(socket, request, self._room.clock)
        arrival = Arrival(worker=worker, credential=credential, peer=peer, line=line)
        serving = asyncio.create_task(self._serve(arrival), name=f"connection of {worker.name}")
        self._serving[serving] = arrival
        serving.add_done_callback(self._serving.pop)
        try:
            # Shielded: being cancelled in a transaction would leave its connection behind.
            await asyncio.shield(serving)
        finally:
            line.closing = True
            await close_socket(socket)
        return socket

    async def _authenticate(self, credential: str, peer: Peer) -> WorkerRow:
        try:
            return await self._room.workers.authenticate(credential)
        except CredentialRevoked as error:
            listed = self._room.refusals.add_revoked(
                credential_hash=error.credential_hash,
                name=error.name,
                address=peer.address,
                reason=error.message,
            )
            if listed:
                self._room.log.warning("refused a connection from %s: %s", peer.address, error.message)
            raise

    # ------------------------------------------------------------ the connection

    async def _serve(self, arrival: Arrival) -> None:
        writing = asyncio.create_task(arrival.line.write(), name="worker line")
        try:
            await self._admit(arrival)
        except NotAdmitted as no:
            self._refuse(arrival, no)
            await writing
        except ConnectionError:
            arrival.line.abort()
        else:
            await self._follow(arrival)
        finally:
            self._room.claims.release(arrival)
            arrival.line.closing = True
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def _follow(self, arrival: Arrival) -> None:
        session = arrival.session
        assert session is not None
        working = asyncio.create_task(session.work(), name=f"worker {session.view.name}")
        why = "the connection was closed"
        try:
            why = await session.read()
        finally:
            await self._end(session, working, why)
            self._room.log.info("worker %s is disconnected: %s", session.view.name, why)

    async def _end(self, session: Session, working: asyncio.Task[None], why: str) -> None:
        session.dispose()
        await asyncio.gather(working, return_exceptions=True)
        await self._room.actors.down(session, why)

    def _refuse(self, arrival: Arrival, no: NotAdmitted) -> None:
        refused, name = no.refused, arrival.worker.name
        self._room.log.warning(
            "refused worker %s from %s: %s", name, arrival.peer.address or "a tunnel", refused.reason
        )
        if no.listed:
            self._list(arrival, refused)
        arrival.line.finish(refused)

    def _list(self, arrival: Arrival, refused: Refused) -> None:
        self._room.refusals.add(
            name=arrival.worker.name,
            address=arrival.peer.address,
            code=refused.code.value,
            reason=refused.reason,
        )

    # ------------------------------------------------------------ hello

    async def _admit(self, arrival: Arrival) -> None:
        silence = self._room.clock.timer(HANDSHAKE_S, lambda: self._too_slow(arrival))
        try:
            arrival.hello = await self._hello(arrival)
        except codec.BadFrame as error:
            raise unreadable(error) from error
        finally:
            silence.cancel()
        if arrival.hello.name.lower() != arrival.worker.name.lower():
            raise denied(
                RefusalCode.OTHER_NAME,
                f"this credential belongs to worker {arrival.worker.name}, not {arrival.hello.name}; "
                f"forget it (cdui agent forget) to enroll under another name",
            )
        if arrival.hello.instance and not (arrival.hello.one_shot and is_instance_id(arrival.hello.instance)):
            raise denied(
                RefusalCode.BAD_MESSAGE, "only a one-shot agent is an instance, and its ID has no dot"
            )
        async with self._at_once:
            await self._seat(arrival)

    def _too_slow(self, arrival: Arrival) -> None:
        """The rest of hello didn't come. One of another version may not know that it has to."""
        if arrival.mismatch:
            arrival.line.finish(other_version(arrival.mismatch))
        else:
            arrival.line.abort()

    async def _hello(self, arrival: Arrival) -> Hello:
        """Another version may have other fields: what can't be read of it is refused for its version."""
        first = await _next(arrival.line)
        self._compare(arrival, *codec.read_version(first))
        try:
            hello = await self._rest(arrival, first)
        except codec.BadFrame as error:
            if arrival.mismatch:
                raise NotAdmitted(other_version(arrival.mismatch)) from error
            raise
        self._compare(arrival, hello.protocol, hello.version)
        if arrival.mismatch and not hello.attempts:
            raise NotAdmitted(other_version(arrival.mismatch))
        return hello

    async def _rest(self, arrival: Arrival, first: str) -> Hello:
        message = arrival.line.read(first) if not codec.is_head(first) else None
        while message is None:
            message = arrival.line.read(await _next(arrival.line))
        if not isinstance(message, Hello):
            raise codec.BadFrame(message.t, "the first message has to be hello")
        return message

    def _compare(self, arrival: Arrival, protocol: int, version: str) -> None:
        arrival.mismatch = mismatch(protocol, version, ours=self._room.version)
        if protocol != PROTOCOL:
            raise NotAdmitted(other_version(arrival.mismatch))

    async def _check_version(self, arrival: Arrival) -> None:
        """Row 1. An agent of another version that holds runs of ours is let in to finish those."""
        if arrival.mismatch and not await self._room.desk().awaits(arrival.place, arrival.said.attempts):
            raise NotAdmitted(other_version(arrival.mismatch))

    # ------------------------------------------------------------ admission

    async def _seat(self, arrival: Arrival) -> None:
        room = self._room
        actor = room.actors.of(arrival.place)
        try:
            async with actor.lock:
                self._check_open()
                # Read again: it may have been removed or re-keyed while this hello waited.
                arrival.worker = await self._still_enrolled(arrival)
                await self._check_version(arrival)
                if actor.is_stale(arrival.said.incarnation, arrival.said.dial):
                    raise busy("a newer connection of this agent is here already")
                await self._decide(arrival, actor)
                self._claim(arrival)
                await self._welcome(arrival, actor)
        except (NotAdmitted, ConnectionError):
            raise
        except Exception as error:
            log_failure(room.log, error, "the hello of worker %s failed", arrival.worker.name)
            raise busy("the control plane can't use its database now") from error

    async def _still_enrolled(self, arrival: Arrival) -> WorkerRow:
        try:
            return await self._authenticate(arrival.credential, arrival.peer)
        except CredentialRevoked as error:
            # Authenticating has listed it, once an hour.
            raise denied(RefusalCode.REVOKED, error.message, listed=False) from error
        except NotEnrolled as error:
            raise denied(RefusalCode.UNKNOWN_CREDENTIAL, error.message, retry="later") from error

    def _check_open(self) -> None:
        if not self._room.open():
            raise busy("the control plane is starting or stopping")

    async def _decide(self, arrival: Arrival, actor: Actor) -> None:
        answered: bool | None = None
        while True:
            decision = decide(await self._scene(arrival, actor, answered))
            holder = actor.session
            match decision:
                case Decision.ADMIT | Decision.REPLACE:
                    return
                case Decision.HELD:
                    raise held(arrival.name, one_shot=_party(arrival.said).one_shot)
                case Decision.PROBE:
                    assert holder is not None
                    answered = await holder.probe(PROBE_S)
                case Decision.TAKE_OVER:
                    assert holder is not None
                    holder.line.abort()
                    if not await self._room.actors.down_locked(holder, "its machine went silent"):
                        raise busy("the control plane can't use its database now")

    async def _scene(self, arrival: Arrival, actor: Actor, answered: bool | None) -> Scene:
        hello, worker, holder = arrival.said, arrival.worker, actor.session
        newcomer = _party(hello)
        if holder is not None:
            return Scene(newcomer=newcomer, holder=_party(holder.hello), probe_answered=answered)
        desk, place = self._room.desk(), arrival.place
        in_flight = await desk.in_flight(place)
        shows = in_flight > 0 and await desk.check_leases(place, hello.incarnation, hello.attempts)
        before = Before(
            machine_id=worker.machine_id, home_id=worker.home_id, one_shot=worker.last_agent_one_shot
        )
        return Scene(newcomer=newcomer, before=before, in_flight=in_flight, shows_leases=shows)

    def _claim(self, arrival: Arrival) -> None:
        """Row 9. The connection holds the claim until it ends."""
        claim = claim_of(arrival.said, arrival.place, arrival.name)
        if claim is None:
            return
        problem = self._room.desk().claim_problem(claim)
        if problem is None and not self._room.claims.take(claim.run_id, arrival.said.incarnation, arrival):
            problem = f"another agent was started for run {claim.run_id}"
        if problem is not None:
            raise denied(RefusalCode.RUN_NOT_WAITING, problem)

    # ------------------------------------------------------------ welcome

    async def _welcome(self, arrival: Arrival, actor: Actor) -> None:
        room, hello = self._room, arrival.said
        verdicts = await room.desk().hello(arrival.place, hello.incarnation, hello.attempts)
        types = await self._types(hello)
        session = self._session(arrival, actor, types)
        arrival.session = session
        try:
            if not hello.instance:  # instances change nothing of the credential's own entry
                arrival.worker = await room.workers.update(arrival.worker.id, **self._told(arrival))
            session.line.send(self._welcome_of(session, verdicts, await room.backend_data(session)))
        except BaseException:
            session.dispose()
            await room.actors.down_locked(actor.session or session, "its hello failed")
            raise
        actor.seated(hello.incarnation, hello.dial)
        room.actors.seat(actor, session)
        if arrival.mismatch:
            self._list(arrival, other_version(arrival.mismatch))
            room.log.warning("worker %s only finishes its runs: %s", arrival.worker.name, arrival.mismatch)
        elif room.refusals.clear(arrival.name):
            room.log.info("worker %s connected, its refusal is cleared", arrival.name)
        await room.connected(session)

    async def _types(self, hello: Hello) -> frozenset[str] | None:
        own = self._room.around().own()
        if hello.catalog_hash is None:
            return None
        if own is not None and own.definitions.hash == hello.catalog_hash:
            return frozenset(own.definitions.nodes)
        known = await self._room.workers.catalog(hello.catalog_hash)
        return None if known is None else frozenset(known)

    def _session(self, arrival: Arrival, actor: Actor, types: frozenset[str] | None) -> Session:
        room, hello = self._room, arrival.said
        return Session(
            number=(room.db.epoch << 32) + next(self._numbers),
            worker_id=arrival.place,
            hello=hello,
            line=arrival.line,
            lock=actor.lock,
            view=view_of(arrival.worker, hello, server_machine_id=room.machine_id, now=room.clock.now()),
            types=types,
            wants_catalog=hello.catalog_hash is not None and types is None,
            around=room.around(),
            finishing=arrival.mismatch,
        )

    def _told(self, arrival: Arrival) -> dict[str, object]:
        """What hello changes in the worker's row."""
        hello, peer = arrival.said, arrival.peer
        same_machine = hello.machine_id == self._room.machine_id
        has_run = bool(hello.attempts) or bool(self._room.desk().live_attempts(arrival.place))
        new_job = {"last_one_shot_run": None} if hello.one_shot and hello.accepting and not has_run else {}
        return {
            **new_job,
            "machine_id": hello.machine_id,
            "home_id": hello.home_id,
            "platform": hello.platform,
            "last_agent_one_shot": hello.one_shot,
            "devices": [device.model_dump() for device in hello.devices],
            "version": hello.version,
            "connector": hello.connector,
            "address": peer.address,
            "plain_http": peer.in_the_clear and not same_machine,
            "catalog_hash": hello.catalog_hash,
            "fingerprint": hello.fingerprint,
            "plugins": hello.plugins,
            "last_seen": milliseconds(self._room.clock),
        }

    def _welcome_of(
        self, session: Session, verdicts: tuple[Verdict, ...], storage: dict[str, JsonObject]
    ) -> Welcome:
        room = self._room
        return Welcome(
            version=room.version,
            db_id=room.db.db_id,
            server_epoch=room.db.epoch,
            session=session.number,
            worker=WorkerIdentity(
                id=session.worker_id, name=session.view.name, instance=session.hello.instance
            ),
            settings=room.settings.model_copy(update={"window_bytes": session.window_bytes}),
            want_catalog=session.wants_catalog,
            wall_time_ms=milliseconds(room.clock),
            storage=storage,
            verdicts=verdicts,
        )


def credential_of(request: web.Request) -> str:
    """The bearer's.

    Raises: NotEnrolled.
    """
    scheme, _, credential = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise NotEnrolled("A worker's credential is missing (Authorization: Bearer).")
    return credential.strip()


async def _next(line: Line) -> str:
    frame = await line.next_frame()
    if frame is None:
        raise ConnectionResetError("the agent left before its hello was complete")
    return frame


def _party(hello: Hello) -> Party:
    return Party(
        incarnation=hello.incarnation,
        machine_id=hello.machine_id,
        home_id=hello.home_id,
        one_shot=hello.one_shot or bool(hello.instance),
    )


def _refusal(error: CodefyError) -> web.Response:
    """The answer of the HTTP step, in the shape of every API error."""
    revoked = isinstance(error, CredentialRevoked)
    code = RefusalCode.REVOKED if revoked else RefusalCode.UNKNOWN_CREDENTIAL
    return web.json_response(
        {"detail": error.message, "code": error.code},
        status=status_of(error.code),
        headers={REFUSAL_HEADER: code.value},
    )
