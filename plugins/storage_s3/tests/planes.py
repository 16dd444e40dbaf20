"""Both halves of the backend with doubles for hosts, and one run between them."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from codefyui_core.plugin import (
    Assignment,
    AttemptView,
    Family,
    Output,
    RunFiles,
    RunId,
    RunStatus,
    RunView,
    Staged,
    StoredObject,
    WorkerId,
    WorkerView,
)
from codefyui_core.testing.clock import ManualClock
from codefyui_core.testing.hosts import (
    AgentStoreDouble,
    ControlStoreDouble,
    NotesDouble,
    ProgressDouble,
)
from codefyui_storage_s3.agent import S3Agent, S3Session
from codefyui_storage_s3.control import S3Control
from codefyui_storage_s3.models import S3Grant, S3Receipt, S3Ticket

RUN_ID = RunId("0" * 31 + "1")
WORKER = WorkerView(id=WorkerId("0" * 31 + "2"), name="gpu-box-1", connected=True)
FILES = RunFiles(uses_files=True)
RUN = RunView(id=RUN_ID, name="train", status=RunStatus.QUEUED, files=FILES, worker_id=WORKER.id)
ATTEMPT = AttemptView(run_id=RUN_ID, number=1, worker_id=WORKER.id)
TRAIN = b"a,b\n1,2\n" * 100
UPLOADS = {(Family.FILES, "train.csv"): TRAIN}


@dataclass
class Halves:
    """One server and one agent."""

    host: ControlStoreDouble
    agent_host: AgentStoreDouble
    control: S3Control
    agent: S3Agent
    clock: ManualClock = field(default_factory=ManualClock)

    @classmethod
    def of(cls, root: Path, given: dict[str, Any]) -> "Halves":
        clock = ManualClock()
        host = ControlStoreDouble(
            root=root / "control", name="s3", given=dict(given), uploads=dict(UPLOADS), clock=clock
        )
        host.attempts[RUN_ID] = ATTEMPT
        agent_host = AgentStoreDouble(root=root / "agent", name="s3", clock=clock)
        return cls(host, agent_host, S3Control(host), S3Agent(agent_host), clock)

    async def start(self) -> "Halves":
        await self.control.start()
        await self.agent.start()
        return self

    async def aclose(self) -> None:
        await self.control.aclose()
        await self.agent.aclose()
        await self.host.aclose()
        await self.agent_host.aclose()

    async def staged(self, run: RunView = RUN) -> Staged[S3Ticket, S3Grant]:
        return await self.control.stage(run, WORKER, ATTEMPT)

    def given(self, staged: Staged[S3Ticket, S3Grant], run: RunView = RUN) -> Assignment[S3Ticket]:
        return Assignment(run=run, attempt=ATTEMPT, ticket=staged.ticket)

    @asynccontextmanager
    async def session(self, staged: Staged[S3Ticket, S3Grant]) -> AsyncIterator[S3Session]:
        async with asyncio.timeout(60), self.agent.open(ATTEMPT, staged.ticket, staged.grant) as session:
            yield session

    async def publish(
        self,
        session: S3Session,
        data: bytes,
        *,
        notes: NotesDouble | None = None,
        progress: ProgressDouble | None = None,
        **output: Any,
    ) -> tuple[Output, S3Receipt]:
        wanted = output_of(data, **output)
        path = session.workspace.folders.locate(wanted.relative_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        receipt = await session.publish(wanted, path, notes or NotesDouble(), progress or ProgressDouble())
        return wanted, receipt

    async def stored(
        self, staged: Staged[S3Ticket, S3Grant], data: bytes = b"weights", **output: Any
    ) -> StoredObject:
        """Published, accepted and recorded."""
        async with self.session(staged) as session:
            wanted, receipt = await self.publish(session, data, **output)
        stored = await self.control.accept(self.given(staged), wanted, receipt)
        await self.host.record(ATTEMPT, stored)
        return stored


def output_of(
    data: bytes, *, kind: str = "checkpoint", name: str = "digits/epoch-1.pt", key: str = ""
) -> Output:
    relative = name if kind == "output" else f"models/{name}"
    key = key or hashlib.sha256(f"{kind}/{name}".encode()).hexdigest()[:32]
    return Output(key=key, kind=kind, name=name, relative_path=relative, size_bytes=len(data))


async def until(met: Callable[[], bool], within_s: float = 20) -> None:
    """Ask until it is true."""
    async with asyncio.timeout(within_s):
        while not await asyncio.to_thread(met):  # noqa: ASYNC110  there is nothing that tells
            await asyncio.sleep(0.02)


MakeSite: TypeAlias = Callable[..., Awaitable[Halves]]
