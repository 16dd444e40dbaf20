"""Agent half: takes inputs out of the drop folder, and leaves outputs there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from codefyui_core.plugin import (
    AgentStoreHost,
    AttemptView,
    BadName,
    Busy,
    Grant,
    InputItem,
    Notes,
    Output,
    Progress,
    Receipt,
    Refused,
    SafeFolder,
    Sha256,
    StorageAgent,
    StorageSession,
    Ticket,
    Workspace,
)

from .models import MARK, DropFacts, copy, input_name, output_name


class DropAgent(StorageAgent[Ticket, Receipt, Grant, DropFacts]):
    """Offers the folder for as long as it is there."""

    def __init__(self, host: AgentStoreHost) -> None:
        self._host = host
        path = host.saved.get("path")
        self._drop = None if path is None else Path(str(path))

    async def facts(self) -> DropFacts | None:
        try:
            mark = await asyncio.to_thread((self._drop / MARK).read_text) if self._drop else ""
        except (OSError, UnicodeDecodeError):
            return None
        return DropFacts(id=mark) if mark else None

    def open(
        self, attempt: AttemptView, ticket: Ticket, grant: Grant | None
    ) -> AbstractAsyncContextManager["DropSession"]:
        return self._open(attempt)

    @asynccontextmanager
    async def _open(self, attempt: AttemptView) -> AsyncIterator["DropSession"]:
        if self._drop is None:
            raise Refused("this agent has no drop folder any more; start it with --drop PATH")
        yield DropSession(attempt, self._drop, await asyncio.to_thread(self._host.workspace, attempt))


class DropSession(StorageSession[Receipt, Grant]):
    """One try a call: what isn't there yet may still be on its way."""

    def __init__(self, attempt: AttemptView, drop: Path, workspace: Workspace) -> None:
        self.workspace = workspace
        self._attempt = attempt
        self._drop = drop

    async def fetch(self, item: InputItem, into: Path, progress: Progress) -> Sha256 | None:
        return await asyncio.to_thread(self._fetch, item, into, progress)

    def _fetch(self, item: InputItem, into: Path, progress: Progress) -> Sha256:
        name = input_name(self._attempt, item.sha256)
        try:
            with SafeFolder(self._drop) as drop, drop.read(name) as source, into.open("wb") as target:
                return copy(source, target, progress.advance)[0]
        except BadName as error:
            raise Refused(error.message, code=error.code) from error
        except OSError as error:
            raise Busy(f"{self._drop / name} can't be read now: {error.strerror}") from error

    async def publish(self, output: Output, path: Path, notes: Notes, progress: Progress) -> Receipt:
        return await asyncio.to_thread(self._publish, output, path, progress)

    def _publish(self, output: Output, path: Path, progress: Progress) -> Receipt:
        name = output_name(self._attempt, output.key)
        try:
            with path.open("rb") as source, SafeFolder(self._drop) as drop, drop.write(name) as target:
                sha256, size = copy(source, target, progress.advance)
        except BadName as error:
            raise Refused(error.message, code=error.code) from error
        except OSError as error:
            raise Busy(f"{path} can't be left in {self._drop} now: {error.strerror}") from error
        return Receipt(sha256=sha256, size_bytes=size)
