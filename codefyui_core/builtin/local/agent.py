"""Agent half of the local backend."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from codefyui_core.plugin import (
    AttemptView,
    Grant,
    JsonObject,
    Notes,
    Output,
    Progress,
    Receipt,
    StorageAgent,
    StorageSession,
    Workspace,
)

from .durable import hash_and_sync, sync_tree
from .models import FolderPlaces, LocalFacts, LocalTicket, LocalWelcome


class LocalAgent(StorageAgent[LocalTicket, Receipt, Grant, LocalFacts]):
    """Offers itself when this agent can use the folders that the welcome named."""

    def __init__(self) -> None:
        self._places: FolderPlaces | None = None

    async def welcomed(self, data: JsonObject) -> None:
        self._places = LocalWelcome.model_validate(data).places

    async def facts(self) -> LocalFacts | None:
        if self._places is None:
            return None
        usable = await asyncio.to_thread(_usable, self._places)
        return LocalFacts() if usable else None

    def open(
        self, attempt: AttemptView, ticket: LocalTicket, grant: Grant | None
    ) -> AbstractAsyncContextManager["LocalSession"]:
        return _session(ticket)


class LocalSession(StorageSession[Receipt, Grant]):
    """The server's folders, in place. Publishing is making sure that the bytes are on the disk."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    async def publish(self, output: Output, path: Path, notes: Notes, progress: Progress) -> Receipt:
        if await asyncio.to_thread(path.is_dir):
            await asyncio.to_thread(sync_tree, path, progress)
            return Receipt()
        sha256, size = await asyncio.to_thread(hash_and_sync, path, progress)
        return Receipt(sha256=sha256, size_bytes=size)


@asynccontextmanager
async def _session(ticket: LocalTicket) -> AsyncIterator[LocalSession]:
    yield LocalSession(Workspace(folders=ticket.places.folders(), private=False))


def _usable(places: FolderPlaces) -> bool:
    """Families are made on demand, so only those that are there can say no."""
    folders = [Path(places.root), *(path for _, path in places.folders().moved)]
    return folders[0].is_dir() and all(
        os.access(path, os.R_OK | os.W_OK | os.X_OK) for path in folders if path.exists()
    )
