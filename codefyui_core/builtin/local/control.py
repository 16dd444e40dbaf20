"""Control half of the local backend."""

import asyncio
import shutil
from collections.abc import Iterable
from pathlib import Path

from codefyui_core.plugin import (
    Assignment,
    AttemptView,
    BadName,
    Because,
    ControlStoreHost,
    Discard,
    Grant,
    JsonObject,
    LocalFile,
    Offer,
    Output,
    Place,
    Reading,
    Receipt,
    Refusal,
    Refused,
    RunFiles,
    RunView,
    Staged,
    StorageControl,
    StoredObject,
    WorkerView,
    sha256_of,
)

from .models import FolderPlaces, LocalFacts, LocalTicket, LocalWelcome, StoredAt
from .places import real_path, stored_at


class LocalControl(StorageControl[LocalTicket, Receipt, Grant, LocalFacts]):
    """Serves runs where they are; artifacts are files in the server's own folders."""

    def __init__(self, host: ControlStoreHost) -> None:
        self._host = host

    def offer(self, files: RunFiles, worker: WorkerView, facts: LocalFacts | None) -> Offer | Refusal:
        if not worker.same_machine:
            return Refusal(
                because=Because.WORKER,
                reason=f"{worker.name} is not on the server's machine",
                lack="is on another machine than the server",
                remedy="run it on the server",
            )
        if facts is None:
            return Refusal(
                because=Because.WORKER,
                reason=f"the agent of {worker.name} can't read and write {self._host.folders.root}",
                lack=f"can't read and write the server's folder {self._host.folders.root}",
                remedy="start its agent as a user that may",
            )
        return Offer()

    async def stage(
        self, run: RunView, worker: WorkerView, attempt: AttemptView
    ) -> Staged[LocalTicket, Grant]:
        return Staged(ticket=LocalTicket(places=FolderPlaces.of(self._host.folders)))

    async def accept(self, given: Assignment[LocalTicket], output: Output, receipt: Receipt) -> StoredObject:
        try:
            at = stored_at(given.ticket.places.folders(), output.relative_path)
            at = await asyncio.to_thread(_checked, at, receipt)
        except BadName as error:
            raise Refused(error.message, code=error.code) from error
        return StoredObject(
            key=output.key,
            kind=output.kind,
            name=output.name,
            relative_path=output.relative_path,
            size_bytes=receipt.size_bytes,
            sha256=receipt.sha256,
            data=at.model_dump(mode="json"),
        )

    def place(self, stored: StoredObject) -> Place:
        try:
            path = self._at(stored).path
        except BadName:
            return Place(path=None, downloadable=False)
        return Place(path=str(path))

    async def read(self, stored: StoredObject, span: tuple[int, int | None] | None) -> Reading:
        try:
            return LocalFile(path=await asyncio.to_thread(real_path, self._at(stored)))
        except BadName as error:
            raise Refused(error.message, code=error.code) from error

    async def discard(self, order: Discard) -> None:
        going = [stored for stored in order.stored if stored.kind not in order.keep_kinds]
        await asyncio.to_thread(self._remove, going)

    async def welcome(self, worker: WorkerView) -> JsonObject:
        places = FolderPlaces.of(self._host.folders) if worker.same_machine else None
        return LocalWelcome(places=places).to_json()

    def _at(self, stored: StoredObject) -> StoredAt:
        """Rows of the server's own runs have no more than a name below the data folder.

        Raises: BadName for one without a place in it.
        """
        if "base" in stored.data:
            return StoredAt.model_validate(stored.data)
        at = stored_at(self._host.folders, stored.relative_path)
        mtime_ns = stored.data.get("mtime_ns")
        return at.model_copy(update={"mtime_ns": mtime_ns}) if isinstance(mtime_ns, int) else at

    def _remove(self, going: Iterable[StoredObject]) -> None:
        """What is there no more, or may have been written over by a later run, is left alone."""
        for stored in going:
            try:
                at = self._at(stored)
                path = real_path(at)
            except (BadName, Refused):
                continue
            if path.is_dir():
                shutil.rmtree(path)
            elif _is_still(path, at, stored):
                path.unlink(missing_ok=True)


def _checked(at: StoredAt, receipt: Receipt) -> StoredAt:
    path = real_path(at)
    found = path.stat()
    if path.is_dir():
        whole = receipt.size_bytes is None and receipt.sha256 is None
    else:
        whole = receipt.size_bytes == found.st_size and receipt.sha256 is not None
        at = at.model_copy(update={"mtime_ns": found.st_mtime_ns})
    if not whole:
        raise Refused(f"{at.path} is not what its worker said it published; it changed meanwhile")
    return at


def _is_still(path: Path, at: StoredAt, stored: StoredObject) -> bool:
    """By its time where one was kept, else by its content; a checkpoint of the next run has the same size."""
    found = path.stat()
    if found.st_size != stored.size_bytes:
        return False
    if at.mtime_ns is not None:
        return found.st_mtime_ns == at.mtime_ns
    return stored.sha256 is not None and sha256_of(path) == stored.sha256
