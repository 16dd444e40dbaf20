"""A control plane's links room on a real server and database, with a desk that a test scripts."""

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import aiohttp
import pytest
from aiohttp import web

from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.db.database import Database
from codefyui_core.control.links import WorkerService
from codefyui_core.errors import CodefyError, status_of
from codefyui_core.loading import Registry
from codefyui_core.settings import ControlSettings, Install
from codefyui_core.testing.clock import ManualClock
from codefyui_core.wire.messages import AckEntry, Verdict, VerdictKind

MACHINE = "m" * 32
"""The server's own."""
VERSION = "1.2.3"
DEADLINE_S = 10


def _opened():
    gate = asyncio.Event()
    gate.set()
    return gate


@dataclass
class Desk:
    """Remembers what it was told, and answers what the test says."""

    db: Database
    verdicts: tuple = ()
    flying: int = 0
    leases_fit: bool = False
    claim_answer: str | None = None
    live: tuple = ()
    policies: dict = field(default_factory=dict)
    calls: list = field(default_factory=list)
    items_answer: object = None
    hello_gate: asyncio.Event | None = None
    fail: Exception | None = None
    end_gate: asyncio.Event = field(default_factory=_opened)
    """Closed: the transaction of a removal or a re-key waits."""
    lost: Exception | None = None
    """Such a transaction fails, and nothing of it is committed."""
    unheard: Exception | None = None
    """It fails, as far as anybody hears; it was committed."""
    hold_welcomed: bool = False

    def _call(self, name, *arguments):
        self.calls.append((name, *arguments))
        if self.fail is not None:
            raise self.fail

    def named(self, name):
        return [call[1:] for call in self.calls if call[0] == name]

    async def hello(self, worker_id, incarnation, attempts):
        self._call("hello", worker_id, incarnation, attempts)
        if self.hello_gate is not None:
            await self.hello_gate.wait()
        return self.verdicts or tuple(
            Verdict(run_id=one.run_id, attempt=one.attempt, kind=VerdictKind.RESUME) for one in attempts
        )

    async def welcomed(self, worker_id):
        self._call("welcomed", worker_id)

    async def link_down(self, worker_id, why):
        self._call("link_down", worker_id, why)

    async def items(self, worker_id, batch):
        self._call("items", worker_id, batch)
        if callable(self.items_answer):
            return await self.items_answer(batch)
        last = batch.first + len(batch.items) - 1
        return AckEntry(run_id=batch.run_id, attempt=batch.attempt, seq=last)

    async def refused(self, worker_id, refuse):
        self._call("refused", worker_id, refuse)

    async def want_grant(self, worker_id, want):
        self._call("want_grant", worker_id, want)

    def policy_of(self, worker_id, device):
        return self.policies.get((worker_id, device), "count")

    async def set_policy(self, worker_id, device, policy):
        self.policies[worker_id, device] = policy.value

    def offers_changed(self, worker_id):
        self._call("offers_changed", worker_id)

    async def worker_removed(self, worker_id, name, alongside):
        self._call("worker_removed", worker_id, name)
        return await self._alongside(alongside)

    async def worker_rekeyed(self, worker_id, alongside):
        self._call("worker_rekeyed", worker_id)
        return await self._alongside(alongside)

    async def _alongside(self, statements):
        await self.end_gate.wait()
        async with self.db.begin() as connection:
            answer = await statements(connection)
            if self.lost is not None:
                raise self.lost
        if self.unheard is not None:
            raise self.unheard
        return answer

    def live_attempts(self, worker_id):
        return self.live

    def claim_problem(self, claim):
        self._call("claim_problem", claim)
        return self.claim_answer

    async def check_leases(self, worker_id, incarnation, attempts):
        return self.leases_fit

    async def awaits(self, worker_id, attempts):
        return any((one.run_id, one.attempt) in self.live for one in attempts)

    async def in_flight(self, worker_id):
        return self.flying


class Agent:
    """The other end of the line, by hand."""

    def __init__(self, room, socket):
        self.room = room
        self.socket = socket
        self.welcome = None

    async def send(self, **message):
        await self.socket.send_str(json.dumps(message))

    async def receive(self, *words):
        """The next frame with one of the words; beats between are passed over."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                message = await self.socket.receive()
                if message.type is not aiohttp.WSMsgType.TEXT:
                    return {"t": "closed", "code": self.socket.close_code}
                frame = json.loads(message.data)
                if not words or frame["t"] in words:
                    return frame

    async def closed(self):
        """Waits until the server closed the socket; the last frame before it."""
        last = None
        while (frame := await self.receive())["t"] != "closed":
            if frame["t"] != "beat":
                last = frame
        return last

    async def hello(self, **changes):
        message = {
            "t": "hello",
            "protocol": 1,
            "version": VERSION,
            "name": "gpu-box",
            "incarnation": "a" * 32,
            "home_id": "h" * 32,
            "machine_id": "x" * 32,
            "devices": [{"device": "cpu"}, {"device": "cuda:0", "name": "H200"}],
        } | changes
        await self.send(**message)
        frame = await self.receive("welcome", "refused")
        self.welcome = frame if frame["t"] == "welcome" else None
        if frame["t"] == "refused":
            assert (await self.receive())["code"] == 4001
        return frame

    async def report(self):
        """The first report, after which runs may come."""
        before = len(self.room.desk.named("welcomed"))
        await self.send(t="report", storage={}, trust={"kind": "local"})
        await until(lambda: len(self.room.desk.named("welcomed")) > before)

    async def close(self):
        await self.socket.close()


@dataclass
class Room:
    service: WorkerService
    desk: Desk
    db: Database
    manual: ManualClock
    clock: AttentiveClock
    url: str
    http: aiohttp.ClientSession
    catalog: SimpleNamespace
    agents: list = field(default_factory=list)

    @staticmethod
    async def until(condition):
        return await until(condition)

    def set_catalog(self, hashed, *types):
        """This server's node types from now on; None: still being collected."""
        self.catalog.own = None if hashed is None else own_catalog(hashed, *types)

    async def token(self, **asked):
        return (await self.service.make_token(**asked, control_url="http://cp:8000"))["token"]

    async def enroll(self, name="gpu-box", token=None, nonce="n" * 32, **changes):
        values = {
            "token": token or await self.token(),
            "name": name,
            "nonce": nonce,
            "machine_id": "x" * 32,
            "platform": "linux",
            "address": "10.0.0.9",
        } | changes
        return await self.service.enroll(**values)

    async def connect(self, credential):
        headers = {"Authorization": f"Bearer {credential}"}
        agent = Agent(self, await self.http.ws_connect(f"{self.url}/ws/worker", headers=headers))
        self.agents.append(agent)  # a forgotten socket would be closed
        return agent

    async def online(self, credential, **changes):
        agent = await self.connect(credential)
        assert (await agent.hello(**changes))["t"] == "welcome"
        await agent.report()
        return agent

    async def row(self, name="gpu-box"):
        rows = (await self.service.list())["workers"]
        return next((row for row in rows if row["name"] == name), None)

    async def refused(self):
        return (await self.service.list())["refused"]


async def until(condition):
    """Waits for a condition, with a deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.005)


def own_catalog(hashed, *types):
    return SimpleNamespace(definitions=SimpleNamespace(hash=hashed, nodes=dict.fromkeys(types)))


@web.middleware
async def _explained(request, handler):
    try:
        return await handler(request)
    except CodefyError as error:
        answer = {"detail": error.message, "code": error.code}
        return web.json_response(answer, status=status_of(error.code))


@pytest.fixture
async def make_room(tmp_path):
    """Makes rooms over one database; each call is a new start of the server."""

    @asynccontextmanager
    async def make(**env):
        manual = ManualClock()
        clock = AttentiveClock(manual)
        db = await Database.open(f"sqlite+aiosqlite:///{tmp_path}/test.db", user_data=tmp_path, clock=manual)
        desk, catalog = Desk(db), SimpleNamespace(own=own_catalog("own", "A", "B"))
        service = WorkerService(
            db=db,
            desk=desk,
            registry=Registry.of(infos=(), contributions=(), plane=None),
            catalog=lambda: catalog.own,
            settings=ControlSettings(**env),
            install=Install.find(environ={"CODEFYUI_USER_DATA_DIR": str(tmp_path)}),
            clock=clock,
            log=logging.getLogger("test.links"),
            version=VERSION,
            machine_id=MACHINE,
        )
        app = web.Application(middlewares=[_explained])
        app.router.add_get("/ws/worker", service.handle)
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        ticking = asyncio.create_task(clock.run())
        async with aiohttp.ClientSession() as http:
            room = Room(service, desk, db, manual, clock, f"http://127.0.0.1:{port}", http, catalog)
            try:
                yield room
            finally:
                await service.stop()
                for agent in room.agents:
                    await agent.close()
                await runner.cleanup()
                ticking.cancel()
                await asyncio.gather(ticking, return_exceptions=True)
                await db.aclose()

    return make


@pytest.fixture
async def room(make_room):
    async with make_room() as made:
        yield made
