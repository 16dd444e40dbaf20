"""A server with many waiting runs and one worker whose only slot is taken, for the benchmark of the queue."""

import asyncio
import json
import logging
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from codefyui_core.builtin.nodes.start import Start
from codefyui_core.builtin.nodes.text_input import TextInput
from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.db.database import Database
from codefyui_core.control.runs.desk import KnownWorker, WorkerLink
from codefyui_core.control.runs.service import RunService
from codefyui_core.graph import Definitions
from codefyui_core.ids import WorkerId
from codefyui_core.loading import Registry
from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import WorkerView
from codefyui_core.runner.supervisor import Supervisor
from codefyui_core.settings import ControlSettings, Install
from codefyui_core.wire.messages import Assign, DeviceInfo, GrantMessage, Items, Stop

from .fold_room import DOCUMENT, Nodes, enrol

WORKER = WorkerId("bench-worker")
CARD = DeviceInfo(device="cuda:0", name="A card")


@dataclass(slots=True)
class Worker:
    """A line to a worker with one card; hands on what it is assigned. Implements ``WorkerLink``."""

    assigned: "asyncio.Queue[Assign]" = field(default_factory=asyncio.Queue)
    incarnation: str = "1" * 32
    devices: Sequence[DeviceInfo] = (CARD,)
    accepting: bool = True
    ready: bool = True
    claimed_run: str | None = None
    node_types: frozenset[str] | None = frozenset({"Start", "TextInput"})
    lacks_types: bool = False
    facts: Mapping[str, JsonObject | None] = field(default_factory=dict)
    fingerprint: str | None = None
    free_memory: Mapping[str, int] = field(default_factory=dict)
    measured_at: float | None = None
    view: WorkerView = field(default_factory=lambda: WorkerView(id=WORKER, name="bench", connected=True))

    def send(self, message: Assign | Stop | GrantMessage) -> None:
        if isinstance(message, Assign):
            self.assigned.put_nowait(message)

    def run_gone(self) -> None:
        """It came for no run."""


@dataclass(frozen=True, slots=True)
class Directory:
    """The one worker that is connected, and any number that aren't. Implements ``WorkerDirectory``."""

    worker: Worker

    def live(self) -> Sequence[WorkerLink]:
        return (self.worker,)

    def link(self, worker_id: str) -> WorkerLink | None:
        return self.worker if worker_id == WORKER else None

    async def by_name(self, name: str) -> KnownWorker | None:
        return KnownWorker(view=self.worker.view, devices=(CARD,), facts={}, node_types=None)


@dataclass(slots=True, kw_only=True)
class QueueRoom:
    """``finish`` ends what executes; ``service`` does all the rest."""

    database: Database
    service: RunService
    worker: Worker
    waiting: list[str]
    """Ids, oldest first."""
    looking_ms: list[float] = field(default_factory=list)
    """How long each look at the lines took."""

    @classmethod
    async def open(cls, folder: Path, waiting: Sequence[JsonObject]) -> Self:
        """``waiting``: what differs from the usual in the rows of the runs that wait, in order."""
        folder.mkdir()
        clock, log = AttentiveClock(), logging.getLogger("bench")
        install = Install.find(environ={"CODEFYUI_USER_DATA_DIR": str(folder)}, home=folder)
        install.prepare()
        file = folder / "queue.db"
        url = f"sqlite+aiosqlite:///{file}"
        await (await Database.open(url, user_data=folder, clock=clock)).aclose()
        ids = _fill(file, waiting)
        database = await Database.open(url, user_data=folder, clock=clock)
        nodes = Nodes(definitions=Definitions.of([Start.define(""), TextInput.define("")]), devices=())
        worker = Worker()
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
        await enrol(database, WORKER)
        room = cls(database=database, service=service, worker=worker, waiting=ids)
        room._time_looks()
        await service.start()
        return room

    def _time_looks(self) -> None:
        dispatcher = self.service._dispatcher
        look = dispatcher._look

        def timed() -> None:
            began = time.perf_counter()
            look()
            self.looking_ms.append((time.perf_counter() - began) * 1000)

        dispatcher._look = timed  # type: ignore[method-assign]

    async def submit(self) -> str:
        answer = await self.service.submit(DOCUMENT, {"target": "any", "device": "cuda"})
        return str(answer["run_id"])

    async def next_assignment(self) -> Assign:
        async with asyncio.timeout(30):
            return await self.worker.assigned.get()

    async def finish(self, assign: Assign) -> None:
        """The run was accepted, and its process is gone."""
        accepted: JsonObject = {
            "kind": "accepted",
            "payload": {"incarnation": "1" * 32, "devices": ["cuda:0"]},
        }
        exited: JsonObject = {"kind": "exited", "payload": {"exit_code": 0}}
        end: JsonObject = {"kind": "end", "payload": {"outcome": "succeeded"}}
        batch = Items(
            run_id=assign.run_id,
            attempt=assign.attempt,
            lease=assign.lease,
            first=1,
            items=(accepted, exited, end),
        )
        await self.service.items(WORKER, batch)

    async def close(self) -> None:
        await self.service.stop(keep=True, grace_s=0)
        await self.database.aclose()


def _fill(file: Path, waiting: Sequence[JsonObject]) -> list[str]:
    """Rows of waiting runs, as a server would have left them."""
    usual: JsonObject = {
        "name": "bench",
        "status": "queued",
        "document": json.dumps(DOCUMENT),
        "has_secrets": 0,
        "options": "{}",
        "target": json.dumps({"any": True}),
        "device": "cuda",
        "files": json.dumps({}),
        "node_types": json.dumps(["Start", "TextInput"]),
        "queue_key": "any/cuda",
        "queued_wait_s": 0.0,
        "attempt": 0,
        "settled": 0,
        "last_cursor": 0,
        "created_at": 1,
    }
    names = ["id", "queue_seq", *usual, "worker_name"]
    ids = [f"{number:032x}" for number in range(1, len(waiting) + 1)]
    rows = (
        {**usual, "worker_name": None, **differing, "id": run_id, "queue_seq": number}
        for number, (run_id, differing) in enumerate(zip(ids, waiting, strict=True), 1)
    )
    with sqlite3.connect(file) as connection:
        marks = ", ".join(f":{name}" for name in names)
        connection.executemany(f"INSERT INTO runs ({', '.join(names)}) VALUES ({marks})", rows)
    connection.close()
    return ids
