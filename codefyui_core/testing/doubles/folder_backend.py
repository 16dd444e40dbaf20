"""A whole carrier in one file: files travel through a folder that both sides reach."""

import asyncio
import hashlib
import shutil
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import StrEnum
from pathlib import Path

from codefyui_core.ids import Sha256
from codefyui_core.plugin import (
    AgentStoreHost,
    Assignment,
    AttemptView,
    Because,
    ControlStoreHost,
    Discard,
    Facts,
    Grant,
    InputItem,
    LocalFile,
    Notes,
    Offer,
    Output,
    Place,
    Progress,
    Reading,
    Receipt,
    Refusal,
    Refused,
    RunFiles,
    RunView,
    Staged,
    StorageAgent,
    StorageBackend,
    StorageControl,
    StorageKind,
    StorageSession,
    StoredObject,
    Ticket,
    WorkerView,
    Workspace,
    sha256_of,
)


class Step(StrEnum):
    """Where a faulty backend may fail."""

    FACTS = "facts"
    STAGE = "stage"
    RENEW = "renew"
    FETCH = "fetch"
    PUBLISH = "publish"
    ACCEPT = "accept"
    READ = "read"
    DISCARD = "discard"


class FolderBackend(StorageBackend[Ticket, Receipt, Grant, Facts]):
    """Works. Its faulty relatives override ``before``, which is awaited at each step."""

    name = "folder"
    title = "A folder"
    kind = StorageKind.CARRIER
    preference = 50

    def __init__(self, spool: Path) -> None:
        self.spool = spool
        self.steps: list[Step] = []
        """Every step that was taken, in order."""

    async def before(self, step: Step) -> None:
        """Nothing goes wrong."""

    async def take(self, step: Step) -> None:
        self.steps.append(step)
        await self.before(step)

    def grant_now(self) -> Grant | None:
        """What ``stage`` and ``renew`` hand out."""
        return None

    def content(self, data: bytes) -> bytes:
        """What arrives of an input's bytes."""
        return data

    def control(self, host: ControlStoreHost) -> "FolderControl":
        return FolderControl(self, host)

    def agent(self, host: AgentStoreHost) -> "FolderAgent":
        return FolderAgent(self, host)


class FolderControl(StorageControl[Ticket, Receipt, Grant, Facts]):
    def __init__(self, backend: FolderBackend, host: ControlStoreHost) -> None:
        self._backend = backend
        self._host = host

    def offer(self, files: RunFiles, worker: WorkerView, facts: Facts | None) -> Offer | Refusal:
        if facts is None:
            return Refusal(
                because=Because.WORKER,
                reason="no folder backend there",
                lack="has no folder backend",
                remedy="restart its agent",
            )
        if files.carry_problem is not None:
            return Refusal(
                because=Because.RUN,
                reason=files.carry_problem,
                lack="can't get the run's files",
                remedy=f"make them fit: {files.carry_problem}",
            )
        return Offer()

    async def stage(self, run: RunView, worker: WorkerView, attempt: AttemptView) -> Staged[Ticket, Grant]:
        await self._backend.take(Step.STAGE)
        items = await self._host.inputs(run)
        for item in items:
            await asyncio.to_thread(_copy, self._host.input_path(item), self._backend.spool / item.sha256)
        return Staged(ticket=Ticket(inputs=items), grant=self._backend.grant_now())

    async def renew(self, given: Assignment[Ticket]) -> Grant | None:
        await self._backend.take(Step.RENEW)
        return self._backend.grant_now()

    async def accept(self, given: Assignment[Ticket], output: Output, receipt: Receipt) -> StoredObject:
        await self._backend.take(Step.ACCEPT)
        path = _place(self._backend.spool, given.run.id, output.key)
        if not path.is_file() or await asyncio.to_thread(sha256_of, path) != receipt.sha256:
            raise Refused(f"{output.name} isn't what its worker said")
        return StoredObject(
            key=output.key,
            kind=output.kind,
            name=output.name,
            relative_path=output.relative_path,
            size_bytes=path.stat().st_size,
            sha256=receipt.sha256,
            data={"run": given.run.id},
        )

    def place(self, stored: StoredObject) -> Place:
        return Place(path=str(self._path(stored)))

    async def read(self, stored: StoredObject, span: tuple[int, int | None] | None) -> Reading:
        await self._backend.take(Step.READ)
        if not self._path(stored).is_file():
            raise Refused(f"{stored.name} is gone", code="artifact.not_found")
        return LocalFile(path=self._path(stored))

    async def discard(self, order: Discard) -> None:
        await self._backend.take(Step.DISCARD)
        for stored in order.stored:
            if stored.kind not in order.keep_kinds:
                self._path(stored).unlink(missing_ok=True)

    def _path(self, stored: StoredObject) -> Path:
        return _place(self._backend.spool, str(stored.data["run"]), stored.key)


class FolderAgent(StorageAgent[Ticket, Receipt, Grant, Facts]):
    def __init__(self, backend: FolderBackend, host: AgentStoreHost) -> None:
        self._backend = backend
        self._host = host

    async def facts(self) -> Facts | None:
        await self._backend.take(Step.FACTS)
        return Facts()

    def open(
        self, attempt: AttemptView, ticket: Ticket, grant: Grant | None
    ) -> AbstractAsyncContextManager["FolderSession"]:
        return _session(self._backend, self._host.workspace(attempt), attempt)


@asynccontextmanager
async def _session(
    backend: FolderBackend, workspace: Workspace, attempt: AttemptView
) -> AsyncIterator["FolderSession"]:
    yield FolderSession(backend, workspace, attempt)


class FolderSession(StorageSession[Receipt, Grant]):
    def __init__(self, backend: FolderBackend, workspace: Workspace, attempt: AttemptView) -> None:
        self.workspace = workspace
        self.grants: list[Grant] = []
        self._backend = backend
        self._attempt = attempt

    async def fetch(self, item: InputItem, into: Path, progress: Progress) -> Sha256 | None:
        await self._backend.take(Step.FETCH)
        data = self._backend.content((self._backend.spool / item.sha256).read_bytes())
        into.write_bytes(data)
        progress.advance(len(data))
        return Sha256(hashlib.sha256(data).hexdigest())

    async def publish(self, output: Output, path: Path, notes: Notes, progress: Progress) -> Receipt:
        await self._backend.take(Step.PUBLISH)
        await asyncio.to_thread(_copy, path, _place(self._backend.spool, self._attempt.run_id, output.key))
        progress.advance(path.stat().st_size)
        return Receipt(sha256=await asyncio.to_thread(sha256_of, path), size_bytes=path.stat().st_size)

    async def renewed(self, grant: Grant) -> None:
        self.grants.append(grant)


def _place(spool: Path, run: str, key: str) -> Path:
    return spool / "outputs" / run / key


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
