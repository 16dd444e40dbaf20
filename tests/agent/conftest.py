"""A whole agent against the real links room, with a desk that keeps streams in memory and scripted processes."""

import asyncio
import contextlib
import json
import logging
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from aiohttp import web

from codefyui_core.agent.main import Outside, run_agent
from codefyui_core.agent.plan import AgentPlan
from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.db.database import Database
from codefyui_core.control.links import WorkerService
from codefyui_core.errors import CodefyError, status_of
from codefyui_core.loading import Registry, load
from codefyui_core.plugin import Plane
from codefyui_core.runner.api import Ending
from codefyui_core.settings import ControlSettings, Install
from codefyui_core.testing.clock import ManualClock
from codefyui_core.wire.messages import AckEntry, Assign, Rewind, Stop, StopReason, Verdict, VerdictKind

VERSION = "1.2.3"
DEADLINE_S = 15


async def until(condition, what="the condition"):
    """Waits for a condition, with a deadline."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not (found := condition()):
                await asyncio.sleep(0.005)
            return found
    except TimeoutError:
        raise AssertionError(f"{what} didn't come") from None


class Process:
    """A run's process, by hand."""

    def __init__(self, launch):
        self.launch = launch
        self.pid = 4711
        self.is_ready = asyncio.Event()
        self.went = asyncio.get_running_loop().create_future()
        self.stops = []
        self.kills = 0
        self._lines = asyncio.Queue()
        self._ending = asyncio.get_running_loop().create_future()
        self.lost = None
        self.read = 0

    async def ready(self):
        await self.is_ready.wait()
        if self.lost is not None:
            raise self.lost

    async def go(self, go):
        self.went.set_result(go)

    async def lines(self):
        while (line := await self._lines.get()) is not None:
            self.read += 1
            yield line

    async def stop(self, grace_s, *, lets_write=False):
        self.stops.append(grace_s)
        self.lets_write = lets_write

    async def kill(self):
        self.kills += 1
        self.end(signal=9)

    async def ended(self):
        return await asyncio.shield(self._ending)

    def say(self, kind="event", type_=None, payload=None):
        line = {"kind": kind, "type": type_, "payload": payload or {}, "ts": 1}
        self._lines.put_nowait(json.dumps(line).encode())

    def log(self, text):
        self.say(type_="log", payload={"lines": [text]})

    def end(self, outcome=None, *, exit_code=0, signal=None, stopped_in_time=True, error=None):
        if self._ending.done():
            return
        if outcome is not None:
            self.say("outcome", payload={"outcome": outcome, "error": error, "cause": None})
        self._lines.put_nowait(None)
        self._ending.set_result(
            Ending(
                exit_code=None if signal else exit_code,
                signal=signal,
                out_of_memory=False,
                peak_memory_bytes=5,
                stderr_tail=("bye",),
                stopped_in_time=stopped_in_time,
            )
        )


class Starter:
    """Makes scripted processes; ``ready`` ones wait for go at once."""

    def __init__(self):
        self.processes = []
        self.ready_at_once = True
        self.fail = []

    async def warm(self):
        pass

    async def launch(self, launch):
        if self.fail:
            raise self.fail.pop(0)
        process = Process(launch)
        if self.ready_at_once:
            process.is_ready.set()
        self.processes.append(process)
        return process

    async def aclose(self):
        for process in self.processes:
            process.end(signal=9)

    async def process(self, number=0):
        await until(lambda: len(self.processes) > number, f"process {number}")
        return self.processes[number]


@dataclass
class Stored:
    """An attempt at the control plane."""

    lease: str
    items: list = field(default_factory=list)
    position: int = 0
    final: str | None = None
    stop: StopReason | None = None
    kind: VerdictKind = VerdictKind.RESUME

    @property
    def kinds(self):
        return [item.kind.value for item in self.items]


class Desk:
    """Takes streams in as the fold does: in order, once."""

    def __init__(self):
        self.attempts = {}
        self.hellos = []
        self.downs = []
        self.refusals = []
        self.welcomes = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.unknown = VerdictKind.DISCARD
        self.batches = []
        self.asked = 0
        self.claim_problems = {}
        self.db = None

    async def hello(self, worker_id, incarnation, attempts):
        self.hellos.append(attempts)
        return tuple(self._verdict(one) for one in attempts)

    def _verdict(self, listed):
        stored = self.attempts.get((listed.run_id, listed.attempt))
        if stored is None:
            return Verdict(run_id=listed.run_id, attempt=listed.attempt, kind=self.unknown)
        if stored.final is not None:
            return Verdict(
                run_id=listed.run_id, attempt=listed.attempt, kind=VerdictKind.DISCARD, recorded=stored.final
            )
        return Verdict(
            run_id=listed.run_id,
            attempt=listed.attempt,
            kind=stored.kind,
            position=stored.position,
            stop=stored.stop,
        )

    async def welcomed(self, worker_id):
        self.welcomes += 1

    async def link_down(self, worker_id, why):
        self.downs.append(why)

    async def items(self, worker_id, batch):
        await self.gate.wait()
        stored = self.attempts[batch.run_id, batch.attempt]
        assert batch.lease == stored.lease
        self.batches.append((batch.first, len(batch.items)))
        if batch.first > stored.position + 1:
            return Rewind(run_id=batch.run_id, attempt=batch.attempt, position=stored.position)
        seq = batch.first
        for item in batch.items:
            last = item.payload["to"] if item.kind == "skip" else seq
            if last > stored.position:
                stored.items.append(item)
                stored.position = last
                if item.kind == "end":
                    stored.final = item.payload.get("outcome") or "interrupted"
            seq = last + 1
        return AckEntry(
            run_id=batch.run_id, attempt=batch.attempt, seq=stored.position, recorded=stored.final
        )

    async def refused(self, worker_id, refuse):
        self.refusals.append(refuse)

    async def want_grant(self, worker_id, want):
        pass

    def offers_changed(self, worker_id):
        pass

    def policy_of(self, worker_id, device):
        return "count"

    async def worker_removed(self, worker_id, name, alongside):
        return await self._alongside(alongside)

    async def worker_rekeyed(self, worker_id, alongside):
        return await self._alongside(alongside)

    async def _alongside(self, statements):
        async with self.db.begin() as connection:
            return await statements(connection)

    def live_attempts(self, worker_id):
        self.asked += 1
        return [key for key, stored in self.attempts.items() if stored.final is None]

    def claim_problem(self, claim):
        return self.claim_problems.get(claim.run_id)

    async def check_leases(self, worker_id, incarnation, attempts):
        return False

    async def awaits(self, worker_id, attempts):
        live = self.live_attempts(worker_id)
        return any((one.run_id, one.attempt) in live for one in attempts)

    async def in_flight(self, worker_id):
        return 0


@web.middleware
async def _explained(request, handler):
    try:
        return await handler(request)
    except CodefyError as error:
        return web.json_response({"detail": error.message, "code": error.code}, status=status_of(error.code))


class Control:
    """A control plane on loopback that can be stopped and started again at the same port."""

    def __init__(self, folder, desk):
        self.folder = folder
        self.desk = desk
        self.port = 0
        self.requests = []
        self.version = VERSION
        self.settings = ControlSettings()
        self.manual = ManualClock()
        self.answer = None
        self._stack = contextlib.AsyncExitStack()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    async def start(self):
        clock = AttentiveClock(self.manual)
        self.ticking = asyncio.create_task(clock.run())
        self.db = await Database.open(
            f"sqlite+aiosqlite:///{self.folder}/control.db", user_data=self.folder, clock=self.manual
        )
        self.desk.db = self.db
        self.service = WorkerService(
            db=self.db,
            desk=self.desk,
            registry=Registry.of(infos=(), contributions=(), plane=None),
            catalog=lambda: None,
            settings=self.settings,
            install=Install.find(environ={"CODEFYUI_USER_DATA_DIR": str(self.folder)}),
            clock=clock,
            log=logging.getLogger("test.control"),
            version=self.version,
        )
        app = web.Application(middlewares=[self._recording, _explained])
        app.router.add_get("/ws/worker", self.service.handle)
        app.router.add_post("/api/workers/enroll", self._enroll)
        app.router.add_post("/api/workers/tokens", self._tokens)
        app.router.add_get("/api/workers", self._workers)
        self.runner = web.AppRunner(app, shutdown_timeout=0.5)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = self.runner.addresses[0][1]
        return self

    async def stop(self, reason="shutdown"):
        await self.service.stop(reason, 5.0 if reason == "restart" else None)
        await self.crash()

    async def crash(self):
        """Without a word."""
        self.service.refuse_newcomers()
        for session in list(self.service.live()):
            session.line.abort()
        await self.runner.cleanup()
        await self.db.aclose()
        self.ticking.cancel()

    def cut(self):
        """The network breaks every line."""
        for session in list(self.service.live()):
            session.line.abort()

    def reset(self):
        """Every socket is closed at its other end, also of those that nobody let in yet."""
        server = self.runner.server  # None after a crash
        for handler in [] if server is None else list(server.connections):
            if handler.transport is not None:
                handler.transport.abort()

    @web.middleware
    async def _recording(self, request, handler):
        self.requests.append((request.method, request.path, dict(request.headers)))
        if self.answer is not None:
            return self.answer(request)
        return await handler(request)

    async def _enroll(self, request):
        body = await request.json()
        return web.json_response(await self.service.enroll(**body, address=request.remote))

    async def _tokens(self, request):
        body = await request.json()
        return web.json_response(await self.service.make_token(**body, control_url=self.url), status=201)

    async def _workers(self, request):
        return web.json_response(await self.service.list())

    async def token(self):
        return (await self.service.make_token(control_url=self.url))["token"]

    async def online(self, name=None):
        """The link of the worker once it may get runs."""

        def found():
            links = [one for one in self.service.live() if name is None or one.view.name == name]
            return links[0] if links and links[0].ready else None

        return await until(found, "the worker")

    async def offline(self):
        await until(lambda: not self.service.live(), "the worker's leaving")

    async def assign(self, run_id="r1", attempt=1, *, devices=("cpu",), options=None, **more):
        lease = f"lease-{run_id}-{attempt}"
        self.desk.attempts[run_id, attempt] = Stored(lease)
        link = await self.online()
        link.send(
            Assign(
                run_id=run_id,
                attempt=attempt,
                lease=lease,
                db_id=self.db.db_id,
                graph={"secret": "s3cr3t"},
                options=options or {},
                devices=devices,
                **more,
            )
        )
        return self.desk.attempts[run_id, attempt]

    async def ask_stop(self, run_id="r1", reason=StopReason.USER):
        (await self.online()).send(Stop(run_id=run_id, attempt=1, reason=reason))


class Running:
    """An agent in this process."""

    def __init__(self, plan, install, outside, closed):
        self.closed = closed
        self.stop_asked = asyncio.Event()
        self.drain_asked = asyncio.Event()
        self.names = []
        self.warnings = []
        self.task = asyncio.create_task(
            run_agent(
                plan,
                install,
                connected=self.names.append,
                warn=self.warnings.append,
                stop=self.stop_asked,
                drain=self.drain_asked,
                outside=outside,
            )
        )

    async def stop(self):
        self.stop_asked.set()
        return await asyncio.wait_for(self.task, DEADLINE_S)

    async def ended(self):
        return await asyncio.wait_for(self.task, DEADLINE_S)

    async def kill(self):
        """As by SIGKILL, as far as one process can: nothing is said or awaited any more, its socket is closed."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.closed()


@dataclass
class Line:
    """Both ends."""

    control: Control
    desk: Desk
    starter: Starter
    install: Install
    agents: list = field(default_factory=list)
    registry: object = None

    until = staticmethod(until)

    @property
    def user_data(self):
        return self.install.user_data

    async def agent(self, *, token=True, name="box", clock=None, version=VERSION, **plan):
        """Starts one; the first enrolls."""
        known = {"url": self.control.url, "name": name} | plan
        if token is True and not list((self.user_data / "agent").glob("*.token")):
            known["token"] = await self.control.token()
        elif isinstance(token, str):
            known["token"] = token
        catalog = SimpleNamespace(
            definitions=SimpleNamespace(hash="c" * 64, nodes={}),
            digest="f" * 64,
            devices=tuple(self.devices()),
            problems=(),
        )
        outside = Outside(
            registry=self.registry,
            starter=self.starter,
            catalog=catalog,
            version=version,
            clock=clock,
            signals=False,
        )
        running = Running(AgentPlan(**known), self.install, outside, closed=self.control.reset)
        self.agents.append(running)
        return running

    @staticmethod
    def devices():
        from codefyui_core.wire.messages import DeviceInfo

        return (
            DeviceInfo(device="cpu"),
            DeviceInfo(device="cuda:0", uuid="GPU-0"),
            DeviceInfo(device="cuda:1"),
        )

    def spools(self):
        return sorted(path.name for path in self.user_data.glob("agent-spool/*/*") if path.is_dir())


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Reconnects within a blink; how long is asked elsewhere."""
    monkeypatch.setattr("codefyui_core.agent.backoff.FIRST_S", 0.05)
    monkeypatch.setattr("codefyui_core.agent.backoff.MOST_S", 0.2)


@pytest.fixture
async def line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("control", "agent"):
        (tmp_path / folder).mkdir()
    control = await Control(tmp_path / "control", Desk()).start()
    install = Install.find(environ={"CODEFYUI_USER_DATA_DIR": str(tmp_path / "agent")})
    registry = load(plane=Plane.AGENT, only=("builtin",))
    made = Line(control, control.desk, Starter(), install, registry=registry)
    yield made
    for agent in made.agents:
        if not agent.task.done():
            await agent.kill()
    with contextlib.suppress(Exception):
        await control.crash()
