"""Runs on a real database, with agents and run processes that a test scripts."""

import asyncio
import json
import logging
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace

import pytest
from sqlalchemy import insert

from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.db.database import Database
from codefyui_core.control.db.tables import workers
from codefyui_core.control.links.workers import remove
from codefyui_core.control.runs.desk import KnownWorker
from codefyui_core.control.runs.service import RunService
from codefyui_core.errors import CodefyError
from codefyui_core.graph import Definitions
from codefyui_core.loading import Registry
from codefyui_core.plugin.node import DataType, NodeDefinition, Param, ParamKind, Port
from codefyui_core.plugin.views import WorkerView
from codefyui_core.runner.api import Ending
from codefyui_core.runs.record import split_identity
from codefyui_core.settings import ControlSettings, Install
from codefyui_core.testing.clock import ManualClock
from codefyui_core.wire.messages import Assign, DeviceInfo, HelloAttempt, Items, Refuse, Rewind, Stop

DEADLINE_S = 20.0
CPU = DeviceInfo(device="cpu", name="CPU")


async def until(condition):
    """Wait for something to become true; what it answered."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.003)


# ---------------------------------------------------------------- graphs


def define(type_, inputs=(), outputs=(), params=()):
    return NodeDefinition(
        type=type_, category="Test", inputs=tuple(inputs), outputs=tuple(outputs), params=tuple(params)
    )


DEFINITIONS = Definitions.of(
    [
        define("Start", outputs=[Port(name="trigger", type=DataType.TRIGGER)]),
        define("Make", outputs=[Port(name="value", type=DataType.SCALAR)]),
        define("Other", outputs=[Port(name="value", type=DataType.SCALAR)]),
        define("Ask", params=[Param(name="key", kind=ParamKind.SECRET, default="")]),
        define("ReadTable", params=[Param(name="path", kind=ParamKind.DATA_FILE, default="")]),
    ]
)


def node(id_, type_, **params):
    return {"id": id_, "type": type_, "position": {"x": 0, "y": 0}, "data": {"params": params}}


def graph(*nodes, **more):
    """Start, and nodes that it triggers; one ``Make`` when none are given."""
    nodes = nodes or (node("make", "Make"),)
    wires = [
        {
            "id": f"go-{one['id']}",
            "source": "start",
            "target": one["id"],
            "sourceHandle": "trigger",
            "targetHandle": "__trigger",
            "type": "trigger",
        }
        for one in nodes
    ]
    return {"name": "test", "nodes": [node("start", "Start"), *nodes], "edges": wires, **more}


def secret_graph(value):
    return graph(node("ask", "Ask", key=value))


def event(type_="log", **payload):
    return {"kind": "event", "type": type_, "payload": payload, "ts": 1_767_225_600_000}


# ---------------------------------------------------------------- processes


class Process:
    """A run process by hand. ``stubborn``: it ends only when it is killed."""

    def __init__(self, launch, *, stubborn):
        self.launch = launch
        self.pid = 4242
        self.go_message = None
        self.began = asyncio.Event()
        self.stops = []
        self.killed = False
        self._stubborn = stubborn
        self._lines = asyncio.Queue()
        self._ended = asyncio.get_running_loop().create_future()

    async def ready(self):
        return None

    async def go(self, go):
        assert self.go_message is None
        self.go_message = go
        self.began.set()

    def say(self, type_="log", *, line="event", **payload):
        self._lines.put_nowait(
            json.dumps({"kind": line, "type": type_, "payload": payload, "ts": 5}).encode()
        )

    def say_raw(self, line):
        self._lines.put_nowait(line)

    def finish(self, outcome="succeeded", exit_code=0, error=None, cause=None, in_time=True, **ending):
        if outcome is not None:
            self.say(line="outcome", outcome=outcome, error=error, cause=cause)
        self._lines.put_nowait(None)
        if not self._ended.done():
            values = {
                "exit_code": exit_code,
                "signal": None,
                "out_of_memory": False,
                "peak_memory_bytes": 1000,
                "stderr_tail": ("last words",),
                "stopped_in_time": in_time,
            }
            self._ended.set_result(Ending(**values | ending))

    async def lines(self):
        while (line := await self._lines.get()) is not None:
            yield line

    async def stop(self, grace_s):
        self.stops.append(grace_s)
        if not self._stubborn:
            self.finish(outcome="stopped")

    async def kill(self):
        self.killed = True
        if not self._ended.done():
            self.finish(outcome=None, exit_code=None, signal=9, in_time=False)

    async def ended(self):
        return await self._ended


class Starter:
    """Makes scripted processes; ``fail`` is raised by the next launches."""

    def __init__(self):
        self.processes = {}
        self.failures = []
        self.stubborn = False

    async def warm(self):
        return None

    async def launch(self, launch):
        if self.failures:
            raise self.failures.pop(0)
        process = Process(launch, stubborn=self.stubborn)
        self.processes[launch.run_id] = process
        return process

    async def aclose(self):
        return None


# ---------------------------------------------------------------- workers


@dataclass
class Held:
    """An attempt at an agent."""

    lease: str
    graph: dict
    options: dict
    devices: tuple
    items: list = field(default_factory=list)
    phase: str = "received"
    acked: int = 0


@dataclass
class Agent:
    """A worker's agent and its line, in one. Implements ``WorkerLink``; ``spool`` survives what its line
    doesn't.
    """

    room: object
    name: str
    devices: tuple = (CPU,)
    one_shot: bool = False
    same_machine: bool = False
    node_types: frozenset | None = frozenset(DEFINITIONS.nodes)
    lacks_types: bool = False
    accepting: bool = True
    ready: bool = False
    drained: bool = False
    disabled: bool = False
    claimed_run: str | None = None
    facts: dict = field(default_factory=dict)
    fingerprint: str | None = "f" * 8
    free_memory: dict = field(default_factory=dict)
    measured_at: float | None = None
    incarnation: str = "1" * 32
    spool: dict = field(default_factory=dict)
    received: list = field(default_factory=list)
    refuses: object = None
    let_go: int = 0

    @property
    def id(self):
        return f"id-{self.name}"

    @property
    def connected(self):
        return self.id in self.room.directory.links

    @property
    def view(self):
        return WorkerView(
            id=self.id,
            name=self.name,
            connected=self.connected,
            drained=self.drained,
            disabled=self.disabled,
            one_shot=self.one_shot,
            same_machine=self.same_machine,
        )

    def send(self, message):
        """A frame for the agent. Frames for a line that is down are lost."""
        if not self.connected:
            return
        self.received.append(message)
        if isinstance(message, Assign) and self.refuses is None:
            key = (message.run_id, message.attempt)
            self.spool.setdefault(key, Held(message.lease, message.graph, message.options, message.devices))

    def run_gone(self):
        self.let_go += 1

    # what a test does with it

    def listed(self):
        db_id = self.room.database.db_id
        return tuple(
            HelloAttempt(
                run_id=run_id,
                attempt=attempt,
                lease=held.lease,
                db_id=db_id,
                phase=held.phase,
                last=len(held.items),
                devices=held.devices,
            )
            for (run_id, attempt), held in self.spool.items()
        )

    async def connect(self, listed=None):
        """Hello, welcome, report; the verdicts by run."""
        service = self.room.service
        await self.room.enrol()
        verdicts = await service.hello(self.id, self.incarnation, self.listed() if listed is None else listed)
        self.room.directory.links[self.id] = self
        self.ready = True
        await service.welcomed(self.id)
        return {verdict.run_id: verdict for verdict in verdicts}

    async def drop(self, why="the connection was closed"):
        self.room.directory.links.pop(self.id, None)
        self.ready = False
        await self.room.service.link_down(self.id, why)

    async def got(self, run_id):
        """Waits for the run's assignment."""
        return await until(lambda: self.newest(run_id))

    def newest(self, run_id):
        numbers = [attempt for run, attempt in self.spool if run == run_id]
        return (run_id, max(numbers)) if numbers else None

    def note(self, key, *items):
        """The run goes on: items come into being."""
        self.spool[key].items += items

    async def deliver(self, key, first=1, count=None):
        """Send items from a position on."""
        held = self.spool[key]
        items = held.items[first - 1 :][:count]
        batch = Items(run_id=key[0], attempt=key[1], lease=held.lease, first=first, items=tuple(items))
        answer = await self.room.service.items(self.id, batch)
        if answer is not None and not isinstance(answer, Rewind):
            held.acked = answer.seq
            if answer.recorded:
                del self.spool[key]
        return answer

    async def report(self, key, *items):
        """New items, sent at once."""
        first = len(self.spool[key].items) + 1
        self.note(key, *items)
        return await self.deliver(key, first)

    async def accept(self, run_id):
        """The run begins."""
        key = await self.got(run_id)
        await self.report(key, self.accepted())
        self.spool[key].phase = "running"
        return key

    def accepted(self):
        return {
            "kind": "accepted",
            "payload": {"incarnation": self.incarnation, "devices": ["cpu"], "fingerprint": self.fingerprint},
        }

    @staticmethod
    def exited(**values):
        return {"kind": "exited", "payload": {"exit_code": 0, **values}}

    @staticmethod
    def end(outcome="succeeded", **values):
        return {"kind": "end", "payload": {"outcome": outcome, **values}}

    async def finish(self, key, outcome="succeeded", **values):
        return await self.report(key, self.exited(), self.end(outcome, **values))

    async def assigned(self, run_id, count=1):
        """The newest assignment of a run, once there are that many."""
        await until(lambda: len(self.assigns(run_id)) >= count)
        return self.assigns(run_id)[-1]

    async def refuse(self, message, code="busy", retry=True):
        refusal = Refuse(run_id=message.run_id, attempt=message.attempt, code=code, retry=retry)
        await self.room.service.refused(self.id, refusal)

    def stops(self, run_id):
        return [one.reason for one in self.received if isinstance(one, Stop) and one.run_id == run_id]

    def assigns(self, run_id):
        return [one for one in self.received if isinstance(one, Assign) and one.run_id == run_id]


class Directory:
    """All agents. A worker that was made is enrolled."""

    def __init__(self):
        self.links = {}
        self.agents = {}

    def live(self):
        return list(self.links.values())

    def link(self, worker_id):
        return self.links.get(worker_id)

    async def by_name(self, name):
        agent = next((one for one in self.agents.values() if one.name.lower() == name.lower()), None)
        if agent is None:
            return None
        return KnownWorker(
            view=agent.view, devices=agent.devices, facts=agent.facts, node_types=agent.node_types
        )


# ---------------------------------------------------------------- the room


class Room:
    """A control plane's runs. ``crash`` and ``open`` again: the database is all that stays."""

    def __init__(self, url, folder):
        self.url = url
        self.folder = folder
        self.time = ManualClock()
        self.catalog = SimpleNamespace(definitions=DEFINITIONS, devices=(CPU,))
        self.stores = {}
        self.backends = {}
        self.settings = {}
        self.database = None
        self.service = None
        self.enrolled = set()

    async def open(self, **settings):
        self.settings |= settings
        self.clock = AttentiveClock(self.time)
        self.directory = Directory()
        self.starter = Starter()
        self.database = await Database.open(self.url, user_data=self.folder, clock=self.clock)
        install = Install.find(environ={"CODEFYUI_USER_DATA_DIR": str(self.folder)}, home=self.folder)
        install.prepare()
        registry = Registry.of(infos=(), contributions=(), plane=None)
        registry.backends.update(self.backends)
        self.service = RunService(
            db=self.database,
            catalog=lambda: self.catalog,
            workers=self.directory,
            starter=self.starter,
            registry=registry,
            install=install,
            settings=ControlSettings(**self.settings),
            clock=self.clock,
            log=logging.getLogger("runs"),
            stores=self.stores,
        )
        await self.service.start()
        return self

    async def crash(self):
        """The process is gone: nothing more is written."""
        service = self.service
        self.directory.links.clear()
        await service._tasks.aclose()
        await service._placing.aclose()
        service.writer._task.cancel()
        await asyncio.wait({service.writer._task}, timeout=5)
        await self.database.aclose()
        self.service = self.database = None

    async def restart(self, **settings):
        """Crash, and a new process. Agents keep their spools and know their new surroundings."""
        agents = self.directory.agents
        if self.service is not None:
            await self.crash()
        await self.open(**settings)
        self.directory.agents = agents
        for agent in agents.values():
            agent.ready = False
        return self

    async def close(self):
        if self.service is not None:
            if not self.service._shutdown.begun:
                for process in self.starter.processes.values():
                    process._stubborn = False
                await self.crash()
            else:
                await self.database.aclose()

    async def stop(self, *, keep=False, grace_s=5.0):
        """A graceful stop, with time passing as it wants to."""
        await self.in_time(self.service.stop(keep=keep, grace_s=grace_s))
        await self.database.mark_shutdown("keep" if keep else "clean")

    async def in_time(self, work):
        """What comes of something, with time passing as it wants to."""
        doing = asyncio.ensure_future(work)
        async with asyncio.timeout(DEADLINE_S):
            while not doing.done():
                await asyncio.sleep(0.003)
                await self.time.advance(0.3)
        return await doing

    def agent(self, name="box", **more):
        agent = Agent(self, name, **more)
        self.directory.agents[name] = agent
        return agent

    async def worker(self, name="box", **more):
        agent = self.agent(name, **more)
        await agent.connect()
        return agent

    async def enrol(self):
        """A row for each agent that there is, once."""
        for agent in list(self.directory.agents.values()):
            worker_id, name = split_identity(agent.id)[0], agent.name.partition(".")[0]
            if worker_id in self.enrolled:
                continue
            self.enrolled.add(worker_id)
            row = {"id": worker_id, "name": name, "name_key": name.lower(), "created_at": 0}
            async with self.database.begin() as connection:
                await connection.execute(insert(workers).values(credential_hash=worker_id, **row))

    async def remove(self, name):
        """As links do it."""
        worker_id = f"id-{name}"
        await self.service.worker_removed(worker_id, name, partial(remove, worker_id=worker_id, at_ms=0))

    async def rekey(self, agent):
        """As links do it, without a new credential."""
        await self.service.worker_rekeyed(agent.id, _nothing)

    async def submit(self, document=None, submit_id=None, **options):
        await self.enrol()
        answer = await self.service.submit(document or graph(), options, "", submit_id)
        return answer["run_id"]

    async def process(self, run_id):
        """Waits until the own run executes."""
        process = await until(lambda: self.starter.processes.get(run_id))
        await process.began.wait()
        return process

    def board_used(self):
        """Slots in use: (place, device) -> runs."""
        return {slot: used for slot, used in self.service.board.used().items() if used}

    async def row(self, run_id):
        return await self.service.get(run_id)

    async def status(self, run_id):
        return (await self.row(run_id))["status"]

    async def becomes(self, run_id, status):
        async def is_so():
            row = await self.row(run_id)
            return row if row["status"] == status else None

        return await until(is_so)

    async def log(self, run_id):
        page = await self.service.events(run_id, 0, 2000)
        cursors = [one["cursor"] for one in page["events"]]
        assert cursors == list(range(1, len(cursors) + 1)), "cursors have no gap"
        return page["events"]

    async def types(self, run_id):
        return [one["type"] for one in await self.log(run_id)]

    async def warnings(self, run_id):
        return [one["payload"]["kind"] for one in await self.log(run_id) if one["type"] == "run_warning"]

    async def pass_time(self, seconds):
        """Seconds in which this process is awake."""
        whole = int(seconds)
        for step in [*([1.0] * whole), seconds - whole]:
            await self.time.advance(step)
            self.clock.tick()
        await self.time.settle()

    async def settled(self):
        """All decisions that were asked for are committed."""
        await self.service.writer.run(_nothing)


async def _nothing(unit):
    return None


@pytest.fixture
async def room(database_url, tmp_path):
    """Open, with the default settings."""
    made = Room(database_url, tmp_path)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def closed_room(database_url, tmp_path):
    """To be opened by the test, with settings of its own."""
    made = Room(database_url, tmp_path)
    yield made
    await made.close()


@pytest.fixture
def kit():
    """Ways to write graphs and items, and to wait."""
    return SimpleNamespace(
        graph=graph,
        node=node,
        secret_graph=secret_graph,
        event=event,
        until=until,
        error=CodefyError,
        device=lambda name, **more: DeviceInfo(device=name, **more),
    )
