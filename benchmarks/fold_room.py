"""The part of a control plane that takes events in, with one connected worker and one run that executes on it."""

import asyncio
import gc
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from sqlalchemy import insert

from codefyui_core.builtin.nodes.start import Start
from codefyui_core.builtin.nodes.text_input import TextInput
from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.db.database import Database
from codefyui_core.control.db.tables import workers
from codefyui_core.control.runs.desk import KnownWorker, WorkerLink
from codefyui_core.control.runs.service import RunService
from codefyui_core.graph import Definitions
from codefyui_core.ids import WorkerId
from codefyui_core.loading import Registry
from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import WorkerView
from codefyui_core.runner.supervisor import Supervisor
from codefyui_core.settings import ControlSettings, Install
from codefyui_core.wire.messages import Assign, DeviceInfo, GrantMessage, Stop

CPU = DeviceInfo(device="cpu", name="CPU")
WORKER = WorkerId("bench-worker")
DOCUMENT: JsonObject = {
    "name": "bench",
    "nodes": [
        {"id": "start", "type": "Start", "data": {"params": {}}},
        {"id": "node", "type": "TextInput", "data": {"params": {}}},
    ],
    "edges": [{"source": "start", "target": "node", "sourceHandle": "trigger", "type": "trigger"}],
}


@dataclass(slots=True)
class Worker:
    """A line to a worker that only notes its assignment. Implements ``WorkerLink``."""

    assigned: "asyncio.Future[Assign]"
    incarnation: str = "1" * 32
    devices: Sequence[DeviceInfo] = (CPU,)
    accepting: bool = True
    ready: bool = True
    claimed_run: str | None = None
    node_types: frozenset[str] | None = None
    lacks_types: bool = False
    facts: Mapping[str, JsonObject | None] = field(default_factory=dict)
    fingerprint: str | None = None
    free_memory: Mapping[str, int] = field(default_factory=dict)
    measured_at: float | None = None
    view: WorkerView = field(default_factory=lambda: WorkerView(id=WORKER, name="bench", connected=True))

    def send(self, message: Assign | Stop | GrantMessage) -> None:
        if isinstance(message, Assign):
            self.assigned.set_result(message)

    def run_gone(self) -> None:
        """It came for no run."""


@dataclass(frozen=True, slots=True)
class Directory:
    """The one worker. Implements ``WorkerDirectory``."""

    worker: Worker

    def live(self) -> Sequence[WorkerLink]:
        return (self.worker,)

    def link(self, worker_id: str) -> WorkerLink | None:
        return self.worker if worker_id == WORKER else None

    async def by_name(self, name: str) -> KnownWorker | None:
        return KnownWorker(view=self.worker.view, devices=self.worker.devices, facts={}, node_types=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """As runs see the catalog."""

    definitions: Definitions
    devices: Sequence[DeviceInfo] = (CPU,)


async def enrol(database: Database, worker_id: str) -> None:
    """A worker without a credential."""
    row = {"id": worker_id, "name": "bench", "name_key": "bench", "credential_hash": "", "created_at": 0}
    async with database.begin() as connection:
        await connection.execute(insert(workers).values(**row))


@dataclass(slots=True, kw_only=True)
class FoldRoom:
    """``service.items`` takes what the agent of ``assign`` would send."""

    file: Path
    database: Database
    service: RunService
    assign: Assign

    @classmethod
    async def open(cls, folder: Path) -> Self:
        clock, log = AttentiveClock(), logging.getLogger("bench")
        install = Install.find(environ={"CODEFYUI_USER_DATA_DIR": str(folder)}, home=folder)
        install.prepare()
        file = folder / "fold.db"
        database = await Database.open(f"sqlite+aiosqlite:///{file}", user_data=folder, clock=clock)
        worker = Worker(asyncio.get_running_loop().create_future())
        nodes = Nodes(definitions=Definitions.of([Start.define(""), TextInput.define("")]))
        service = RunService(
            db=database,
            catalog=lambda: nodes,
            workers=Directory(worker),
            starter=Supervisor(preload=(), zygote=False, log=log),
            registry=Registry.of(infos=(), contributions=(), plane=None),
            install=install,
            settings=ControlSettings(),
            clock=clock,
            log=log,
            stores={},
        )
        await service.start()
        await enrol(database, WORKER)
        await service.submit(DOCUMENT, {"target": {"worker": "bench"}})
        async with asyncio.timeout(20):
            assign = await worker.assigned
        gc.freeze()  # as a server does once it listens
        return cls(file=file, database=database, service=service, assign=assign)

    async def close(self) -> None:
        await self.service.stop(keep=True, grace_s=0)
        await self.database.aclose()
