"""Agent half of the transfer backend."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from codefyui_core.plugin import (
    AgentStoreHost,
    AttemptView,
    ControlHttp,
    Grant,
    InputItem,
    Notes,
    Output,
    Progress,
    Receipt,
    Sha256,
    StorageAgent,
    StorageSession,
    Workspace,
)

from .fetching import Fetching
from .models import TransferFacts, TransferTicket
from .queueing import Queue
from .sending import Pieces, Sending
from .small_inputs import SmallInputs
from .small_outputs import SmallOutputs

ALONE_AT_ONCE = 4
"""Files that go alone. Small ones go together, and many of them have to wait for that."""


class TransferAgent(StorageAgent[TransferTicket, Receipt, Grant, TransferFacts]):
    """Uses the agent's own way to the control plane: its address, its trust, its credential."""

    parallel = 256
    """So that small files of 100 kB fill the requests under way while as many wait for the next one. Of large ones,
    few are under way.
    """

    def __init__(self, host: AgentStoreHost) -> None:
        self._host = host

    async def facts(self) -> TransferFacts | None:
        return TransferFacts()

    def open(
        self, attempt: AttemptView, ticket: TransferTicket, grant: Grant | None
    ) -> AbstractAsyncContextManager["TransferSession"]:
        return self._open(attempt, ticket)

    @asynccontextmanager
    async def _open(self, attempt: AttemptView, ticket: TransferTicket) -> AsyncIterator["TransferSession"]:
        workspace = await asyncio.to_thread(self._host.workspace, attempt)
        session = TransferSession(attempt, ticket, workspace, self._host.http(attempt))
        try:
            yield session
        finally:
            await session.aclose()


class TransferSession(StorageSession[Receipt, Grant]):
    """One attempt's files, by requests to the control plane."""

    def __init__(
        self, attempt: AttemptView, ticket: TransferTicket, workspace: Workspace, http: ControlHttp
    ) -> None:
        self.workspace = workspace
        self._attempt = attempt
        self._ticket = ticket
        self._http = http
        self._pieces = Pieces(ticket.chunk_bytes)
        self._queue = Queue()
        self._alone = asyncio.Semaphore(ALONE_AT_ONCE)
        self._small_inputs = SmallInputs(http, attempt.run_id)
        self._small_outputs = SmallOutputs(http, attempt, self._pieces, ticket.max_upload_bytes)

    async def aclose(self) -> None:
        """Ends what is under way."""
        await self._small_inputs.aclose()
        await self._small_outputs.aclose()

    async def fetch(self, item: InputItem, into: Path, progress: Progress) -> Sha256 | None:
        progress = self._queue.watched(progress)
        with self._queue.waits(progress):
            sha256 = await self._small_inputs.fetch(item, into, progress)
        if sha256 is not None:
            return sha256
        async with self._place(progress):
            return await Fetching(self._http, self._attempt.run_id, item, progress).into(into)

    async def publish(self, output: Output, path: Path, notes: Notes, progress: Progress) -> Receipt:
        """What a later try needs to know, the control plane knows: where the file goes on."""
        progress = self._queue.watched(progress)
        with self._queue.waits(progress):
            receipt = await self._small_outputs.send(output, path, progress)
        if receipt is not None:
            return receipt
        async with self._place(progress):
            sending = Sending(self._http, self._attempt, output, self._pieces, progress)
            return await sending.file(path, self._ticket.max_upload_bytes)

    @asynccontextmanager
    async def _place(self, progress: Progress) -> AsyncIterator[None]:
        """For a file that goes alone."""
        with self._queue.waits(progress):
            await self._alone.acquire()
        try:
            yield
        finally:
            self._alone.release()
