"""A control plane in the test's own loop: a real database and real rooms; processes of runs by hand."""

import asyncio
import json
import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.app import make_app
from codefyui_core.control.db.database import Database
from codefyui_core.control.plane import ControlPlane
from codefyui_core.graph import Definitions
from codefyui_core.loading import Registry, load
from codefyui_core.plugin.node import DataType, NodeDefinition, Param, ParamKind, Port
from codefyui_core.plugin.values import Plane
from codefyui_core.runner.api import Ending, Go, Launch
from codefyui_core.runner.definitions import Catalog
from codefyui_core.settings import ControlSettings, Install, read_settings
from codefyui_core.testing.clock import ManualClock
from codefyui_core.wire.messages import DeviceInfo

DEADLINE_S = 20.0


def define(type_: str, **more: Any) -> NodeDefinition:
    return NodeDefinition(type=type_, category="Test", **more)


DEFINITIONS = Definitions.of(
    [
        define("Start", outputs=(Port(name="trigger", type=DataType.TRIGGER),)),
        define("Make", outputs=(Port(name="value", type=DataType.SCALAR),)),
        define("Ask", params=(Param(name="key", kind=ParamKind.SECRET, default=""),)),
    ],
    presets=[{"preset_name": "Nothing", "name": "Nothing", "nodes": [], "edges": []}],
)
CATALOG = Catalog(
    definitions=DEFINITIONS,
    providers={"Start": "builtin", "Make": "plugin:codefyui-test", "Ask": "custom"},
    problems=(),
    devices=(DeviceInfo(device="cpu", name="A processor"),),
    fingerprint={},
    digest="d",
    examples=(),
)


def node(id_: str, type_: str, **params: Any) -> dict[str, Any]:
    return {"id": id_, "type": type_, "position": {"x": 0, "y": 0}, "data": {"params": params}}


def graph(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
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


class Process:
    """A run process that says what a test tells it to."""

    def __init__(self) -> None:
        self.pid = 4242
        self.began = asyncio.Event()
        self.document: dict[str, Any] = {}
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()

    async def ready(self) -> None:
        return None

    async def go(self, go: Go) -> None:
        self.document = dict(go.document)
        self.say("execution_start", run_id=go.run_id)
        self.began.set()

    def say(self, type_: str, *, line: str = "event", **payload: Any) -> None:
        said = {"kind": line, "type": type_, "payload": payload, "ts": 1_767_225_600_000}
        self._lines.put_nowait(json.dumps(said).encode())

    def log(self, *lines: str) -> None:
        self.say("log", lines=list(lines), stream="stdout")

    def finish(self, outcome: str | None = "succeeded", exit_code: int | None = 0) -> None:
        if self._ended.done():
            return
        if outcome is not None:
            self.say("", line="outcome", outcome=outcome, error=None, cause=None)
        self._lines.put_nowait(None)
        self._ended.set_result(
            Ending(
                exit_code=exit_code,
                signal=None,
                out_of_memory=False,
                peak_memory_bytes=1,
                stderr_tail=(),
                stopped_in_time=True,
            )
        )

    async def lines(self) -> AsyncIterator[bytes]:
        while (line := await self._lines.get()) is not None:
            yield line

    async def stop(self, grace_s: float) -> None:
        self.finish("stopped")

    async def kill(self) -> None:
        self.finish(None, exit_code=None)

    async def ended(self) -> Ending:
        return await self._ended


class Starter:
    """Makes such processes, by the id of their run."""

    def __init__(self) -> None:
        self._launched: dict[str, asyncio.Future[Process]] = {}

    def process(self, run_id: str) -> "asyncio.Future[Process]":
        """Of a run, once it is launched."""
        return self._launched.setdefault(run_id, asyncio.get_running_loop().create_future())

    async def warm(self) -> None:
        return None

    async def launch(self, launch: Launch) -> Process:
        process = Process()
        self.process(launch.run_id).set_result(process)
        return process

    async def aclose(self) -> None:
        for launched in self._launched.values():
            if launched.done():
                launched.result().finish(None)


@dataclass
class App:
    """The plane and a client of it, which has the session token."""

    plane: ControlPlane
    client: TestClient[Any, Any]
    starter: Starter
    clock: ManualClock
    starting: "asyncio.Task[None] | None" = None

    @property
    def url(self) -> str:
        return str(self.client.make_url("/")).rstrip("/")

    async def ask(self, method: str, path: str, *, token: str | None = "", **more: Any) -> "Answer":
        """``token``: None for none, empty for the right one."""
        headers = dict(more.pop("headers", {}))
        if token is not None:
            headers["X-CodefyUI-Token"] = token or self.plane.token
        async with self.client.request(method, path, headers=headers, **more) as response:
            return Answer(response.status, await response.read(), response.headers)

    async def get(self, path: str, **more: Any) -> "Answer":
        return await self.ask("GET", path, token=None, **more)

    async def post(self, path: str, body: Any = None, **more: Any) -> "Answer":
        return await self.ask("POST", path, json=body, **more)

    async def submit(self, document: dict[str, Any] | None = None, **more: Any) -> str:
        answer = await self.post("/api/runs", {"graph": document or graph(), **more})
        assert answer.status == 200, answer.json
        return str(answer.json["run_id"])

    async def running(self, **more: Any) -> tuple[str, Process]:
        """A run whose process waits for what a test says."""
        run_id = await self.submit(**more)
        async with asyncio.timeout(DEADLINE_S):
            process = await self.starter.process(run_id)
            await process.began.wait()
        return run_id, process

    async def row_when(self, run_id: str, **wanted: Any) -> dict[str, Any]:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                row: dict[str, Any] = (await self.get(f"/api/runs/{run_id}")).json
                if all(row[key] == value for key, value in wanted.items()):
                    return row
                await asyncio.sleep(0.003)

    async def finished(self, **more: Any) -> str:
        run_id, process = await self.running(**more)
        process.finish()
        await self.row_when(run_id, active=False)
        return run_id


@dataclass
class Answer:
    """An answer that has been read."""

    status: int
    body: bytes
    headers: Any

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def refused(self, status: int, code: str) -> dict[str, Any]:
        """It is this error, in the shape of all errors."""
        body: dict[str, Any] = self.json
        assert (self.status, body["code"]) == (status, code), body
        assert self.headers["Content-Type"].startswith("application/json")
        assert body["request_id"] == self.headers["X-Request-Id"]
        assert body["detail"].strip()
        return body


@dataclass
class AppMaker:
    """Makes apps; what they leave is cleaned up."""

    folder: Path
    empty: Path
    """A database file that has its tables."""
    made: list[App] = field(default_factory=list)

    async def __call__(
        self, *, registry: Registry | None = None, ready: bool = True, wait: bool = True, **settings: str
    ) -> App:
        """``wait``: until the halves of plugins have started."""
        flags = {f"CODEFYUI_{name.upper()}": value for name, value in settings.items()}
        install = Install.find(flags=flags)
        install.prepare()
        control = read_settings(ControlSettings, install.layers)
        clock = ManualClock()
        file = self.folder / "user" / "codefyui.db"
        if not file.exists():
            shutil.copy(self.empty, file)
        starter = Starter()
        plane = ControlPlane(
            install=install,
            settings=control,
            registry=registry or load(plane=Plane.CONTROL, only=("builtin",)),
            db=await Database.open(url_of(file), user_data=install.user_data, clock=clock),
            clock=AttentiveClock(),
            log=logging.getLogger("codefyui.test"),
            starter=starter,
        )
        plane.catalog.current = CATALOG if ready else None
        try:
            plane.halves.make()
            await plane.start()
            client = TestClient(TestServer(make_app(plane), access_log=None))
            await client.start_server()
        except BaseException:
            await plane.stop()
            raise
        app = App(plane, client, starter, clock)
        self.made.append(app)
        app.starting = asyncio.create_task(plane.halves.start())
        if wait:
            await app.starting
        return app

    async def aclose(self) -> None:
        for app in self.made:
            if app.starting is not None:
                app.starting.cancel()
            await app.plane.stop_work()
            await app.client.close()
            await app.plane.close()


@pytest.fixture(name="graph")
def _graph():  # type: ignore[no-untyped-def]
    return graph


@pytest.fixture(name="node")
def _node():  # type: ignore[no-untyped-def]
    return node


async def until(met: Callable[[], Any]) -> None:
    """Wait for something to become true."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if met():
                return
            await asyncio.sleep(0.003)


@pytest.fixture(name="until")
def _until():  # type: ignore[no-untyped-def]
    return until


def url_of(file: Path) -> str:
    return f"sqlite+aiosqlite:///{file}"


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Migrated once; each test gets a copy."""
    file = tmp_path_factory.mktemp("empty") / "codefyui.db"

    async def make() -> None:
        database = await Database.open(url_of(file), user_data=file.parent, clock=ManualClock())
        await database.aclose()

    asyncio.run(make())
    return file


@pytest.fixture
async def make_app_of(
    tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AppMaker]:
    for name in [name for name in os.environ if name.startswith("CODEFYUI_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CODEFYUI_USER_DATA_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("CODEFYUI_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("CODEFYUI_EXAMPLES_DIR", str(tmp_path / "examples"))
    maker = AppMaker(tmp_path, empty_database)
    yield maker
    await maker.aclose()


@pytest.fixture
async def app(make_app_of: AppMaker) -> App:
    """Started, ready, with three node types and the server's processor."""
    return await make_app_of()
