"""Control half: leaves inputs in the drop folder, and takes outputs out of it into the server's own."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from codefyui_core.plugin import (
    Arrived,
    Arriving,
    Assignment,
    AttemptView,
    Because,
    Busy,
    CodefyError,
    ControlStoreHost,
    Discard,
    DiscardReason,
    Grant,
    InputItem,
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
    SafeFolder,
    Staged,
    StorageControl,
    StorageProblem,
    StoredObject,
    Ticket,
    WorkerView,
)

from .models import MARK, DropFacts, DropSettings, attempt_folder, copy, input_name, output_name


class DropControl(StorageControl[Ticket, Receipt, Grant, DropFacts]):
    """What workers leave is checked while it is copied; from then on it is the server's alone."""

    def __init__(self, host: ControlStoreHost) -> None:
        self._host = host
        self._drop = host.settings(DropSettings).example_drop_dir or Path()
        self._id = ""
        self._problem = "off: set CODEFYUI_EXAMPLE_DROP_DIR"

    async def start(self) -> None:
        if self._drop != Path():
            try:
                self._id, self._problem = await asyncio.to_thread(_marked, self._drop), ""
            except (OSError, CodefyError) as error:
                self._problem = f"off: {self._drop} can't be used ({error})"

    def condition(self) -> str:
        return self._problem or f"on, in {self._drop}"

    def offer(self, files: RunFiles, worker: WorkerView, facts: DropFacts | None) -> Offer | Refusal:
        if not self._id:
            remedy = "set CODEFYUI_EXAMPLE_DROP_DIR to a folder that the server may write to"
            return Refusal(because=Because.OFF, reason=self._problem, remedy=remedy)
        if files.carry_problem is not None:
            remedy = f"make the run fit the drop folder: {files.carry_problem}"
            return Refusal(because=Because.RUN, reason=files.carry_problem, remedy=remedy)
        if facts is None or facts.id != self._id:
            lack = "has no drop folder" if facts is None else "sees another drop folder"
            remedy = "start its agent with --drop PATH"
            return Refusal(because=Because.WORKER, reason=f"{worker.name} {lack}", lack=lack, remedy=remedy)
        return Offer()

    # ------------------------------------------------------------ to the worker

    async def stage(self, run: RunView, worker: WorkerView, attempt: AttemptView) -> Staged[Ticket, Grant]:
        items = await self._host.inputs(run)
        for item in items:
            await asyncio.to_thread(self._leave, attempt, item)
        return Staged(ticket=Ticket(inputs=items))

    def _leave(self, attempt: AttemptView, item: InputItem) -> None:
        path, name = self._host.input_path(item), input_name(attempt, item.sha256)
        with (
            _explained(path.name),
            SafeFolder(self._drop) as drop,
            path.open("rb") as source,
            drop.write(name) as target,
        ):
            sha256, _ = copy(source, target, lambda _: None)
        if sha256 != item.sha256:
            raise Busy(f"{path} was written to while it was copied")

    # ------------------------------------------------------------ from the worker

    async def accept(self, given: Assignment[Ticket], output: Output, receipt: Receipt) -> StoredObject:
        with _explained(output.name):
            arrived = await self._host.arrivals.arrived(given.run.id, output.key)
            if arrived is None:
                arrived = await self._take(given.attempt, output, receipt)
        if (arrived.sha256, arrived.size_bytes) != (receipt.sha256, receipt.size_bytes):
            raise Refused(f"{output.name} arrived with other content", code="upload.mismatch")
        return StoredObject(
            key=output.key,
            kind=output.kind,
            name=output.name,
            relative_path=f"runs/{given.run.id}/{arrived.relative_path}",
            size_bytes=arrived.size_bytes,
            sha256=arrived.sha256,
            data={"name": f"{given.run.id}/{arrived.relative_path}"},
        )

    async def _take(self, attempt: AttemptView, output: Output, receipt: Receipt) -> Arrived:
        """The host's arrivals never write over a file, and go on after a crash where they were."""
        if receipt.sha256 is None or receipt.size_bytes is None:
            raise Refused(f"{output.name} came without its hash and size")
        folder, arrivals = self._host.run_files / attempt.run_id, self._host.arrivals
        file = Arriving(
            run_id=attempt.run_id, key=output.key, folder=folder, name=f"{output.kind}/{output.name}"
        )
        offset = await arrivals.offset(file)
        with await asyncio.to_thread(self._open, output_name(attempt, output.key), offset) as left:
            await arrivals.append(file, offset, _chunks(left))
        return await arrivals.finish(file, size_bytes=receipt.size_bytes, sha256=receipt.sha256)

    def _open(self, name: str, offset: int) -> BinaryIO:
        with SafeFolder(self._drop) as drop:
            file = drop.read(name)
        file.seek(offset)
        return file

    async def settled(self, given: Assignment[Ticket]) -> None:
        await self._host.arrivals.forget(given.run.id)
        with _explained("the drop folder"):
            await asyncio.to_thread(_remove, self._drop, attempt_folder(given.attempt))

    # ------------------------------------------------------------ for people and later runs

    def place(self, stored: StoredObject) -> Place:
        return Place(path=str(self._host.run_files / str(stored.data["name"])))

    async def read(self, stored: StoredObject, span: tuple[int, int | None] | None) -> Reading:
        path = self._host.run_files / str(stored.data["name"])
        if not await asyncio.to_thread(path.is_file):
            raise Refused(f"{path} is gone; it was removed by hand", code="artifact.not_found")
        return LocalFile(path=path)

    async def discard(self, order: Discard) -> None:
        going = [str(one.data["name"]) for one in order.stored if one.kind not in order.keep_kinds]
        if order.why is not DiscardReason.ARTIFACT:
            await self._host.arrivals.forget(order.run.id)
            going = [order.run.id] if len(going) == len(order.stored) else going
        with _explained(order.run.name):
            await asyncio.to_thread(_remove, self._host.run_files, *going)


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(file.read, 1 << 20):
        yield chunk


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """A file that isn't there yet may still be on its way, and a disk may get room; all else is final."""
    try:
        yield
    except StorageProblem:
        raise
    except CodefyError as error:
        kind = Busy if error.code == "storage.full" else Refused
        raise kind(f"{what}: {error.message}", code=error.code) from error
    except OSError as error:
        raise Busy(f"{what}: {error}") from error


def _marked(drop: Path) -> str:
    """The folder's id; it gets one when it has none. Blocking."""
    with SafeFolder(drop) as folder:
        with suppress(FileNotFoundError), folder.read(MARK) as file:
            return file.read().decode("ascii")
        with folder.write(MARK) as file:
            file.write(uuid.uuid4().hex.encode())
    return (drop / MARK).read_text(encoding="ascii")


def _remove(root: Path, *names: str) -> None:
    """Absent is fine. Blocking."""
    if root.is_dir():
        with SafeFolder(root) as folder:
            for name in names:
                folder.remove(name)
