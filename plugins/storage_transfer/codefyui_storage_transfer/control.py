"""Control half of the transfer backend."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from codefyui_core.plugin import (
    Assignment,
    AttemptView,
    BadName,
    Because,
    ControlStoreHost,
    Discard,
    DiscardReason,
    Grant,
    LocalFile,
    Offer,
    Output,
    Place,
    Reading,
    Receipt,
    Refusal,
    Refused,
    Route,
    RunFiles,
    RunView,
    Staged,
    StorageControl,
    StoredObject,
    WorkerView,
)

from .accepting import Accepting
from .input_route import InputParcels
from .models import OUTPUT, StoredAt, TransferFacts, TransferSettings, TransferTicket
from .places import FROM_INPUTS, target
from .stored import check_there, found, listed, path_of, remove_object, remove_run
from .uploads import Uploads

DISTRIBUTION = "codefyui-storage-transfer"
ASKED_AGAIN_S = 1.0
"""How long the settings hold for offers, which are asked for every pair of run and worker."""


class TransferControl(StorageControl[TransferTicket, Receipt, Grant, TransferFacts]):
    """Keeps what runs write: files of a run's own below ``runs/``, outputs in the data folder."""

    def __init__(self, host: ControlStoreHost) -> None:
        self._host = host
        self._uploads = Uploads(host)
        self._input_parcels = InputParcels(host)
        self._accepting = Accepting(host)
        self._settings: tuple[float, TransferSettings] | None = None

    def routes(self) -> Sequence[Route]:
        return (*self._uploads.routes(), *self._input_parcels.routes())

    def condition(self) -> str:
        if not self._host.settings(TransferSettings).transfer_enabled:
            return "off (CODEFYUI_TRANSFER_ENABLED=0)"
        return f"on, outputs up to {self._host.max_upload_bytes} bytes (CODEFYUI_MAX_UPLOAD_SIZE)"

    async def aclose(self) -> None:
        await self._accepting.aclose()

    # ------------------------------------------------------------ before a run

    def offer(self, files: RunFiles, worker: WorkerView, facts: TransferFacts | None) -> Offer | Refusal:
        if not self._recent_settings().transfer_enabled:
            return _unfit(Because.OFF, "it is off (CODEFYUI_TRANSFER_ENABLED=0)")
        if files.carry_problem is not None:
            return _unfit(Because.RUN, files.carry_problem)
        if facts is None:
            return Refusal(
                because=Because.WORKER,
                reason=f"the agent of {worker.name} has no transfer backend of this version",
                lack="has no transfer backend",
                remedy=f"install {DISTRIBUTION} there",
            )
        return Offer()

    def _recent_settings(self) -> TransferSettings:
        now = self._host.clock.monotonic()
        if self._settings is None or now - self._settings[0] >= ASKED_AGAIN_S:
            before = self._settings
            self._settings = (now, self._host.settings(TransferSettings))
            if before is not None and before[1] != self._settings[1]:
                self._host.offers_changed()
        return self._settings[1]

    async def stage(
        self, run: RunView, worker: WorkerView, attempt: AttemptView
    ) -> Staged[TransferTicket, Grant]:
        ticket = TransferTicket(
            inputs=await self._host.inputs(run),
            max_upload_bytes=self._host.max_upload_bytes,
            chunk_bytes=self._host.settings(TransferSettings).transfer_chunk_bytes,
        )
        return Staged(ticket=ticket)

    # ------------------------------------------------------------ what a run wrote

    async def accept(
        self, given: Assignment[TransferTicket], output: Output, receipt: Receipt
    ) -> StoredObject:
        try:
            where = target(
                self._host,
                given.run.id,
                kind=output.kind,
                name=output.name,
                relative_path=output.relative_path,
            )
        except BadName as error:
            raise Refused(error.message, code=error.code) from error
        _check_input(given.ticket, output, where.prefix)
        arrived = await self._accepting.look(given.run.id, output, receipt, where)
        return listed(output.key, output.kind, output.name, where, arrived)

    async def settled(self, given: Assignment[TransferTicket]) -> None:
        run, holder = given.run.id, await self._host.attempt(given.run.id)
        if holder is not None and holder != given.attempt:
            return  # what comes in now is the later attempt's
        await self._host.arrivals.forget(run)
        for file, arrived in await self._host.arrivals.unlisted(run):
            await self._host.record(given.attempt, found(self._host, file, arrived))

    # ------------------------------------------------------------ for people and later runs

    def place(self, stored: StoredObject) -> Place:
        try:
            return Place(path=str(path_of(stored)))
        except ValidationError:
            return Place(path=None, downloadable=False)

    async def read(self, stored: StoredObject, span: tuple[int, int | None] | None) -> Reading:
        try:
            at, path = StoredAt.model_validate(stored.data), path_of(stored)
        except ValidationError as error:
            raise Refused(f"{stored.name} isn't on this server", code="artifact.not_found") from error
        await asyncio.to_thread(check_there, path, Path(at.base), stored.size_bytes)
        return LocalFile(path=path)

    async def discard(self, order: Discard) -> None:
        going = [one for one in order.stored if one.kind not in order.keep_kinds and one.data]
        if order.why is not DiscardReason.ARTIFACT:
            await self._host.arrivals.forget(order.run.id)
        else:
            going = await self._alone(order, going)
        await asyncio.to_thread(self._remove, order, going)

    async def _alone(self, order: Discard, going: list[StoredObject]) -> list[StoredObject]:
        """Those whose file no other artifact of the run has, too: the same content under one name is one file."""
        keys = {stored.key for stored in order.stored}
        others = [one.data for one in await self._host.stored(order.run.id) if one.key not in keys]
        return [stored for stored in going if stored.data not in others]

    def _remove(self, order: Discard, going: Sequence[StoredObject]) -> None:
        for stored in going:
            remove_object(stored)
        if order.why is not DiscardReason.ARTIFACT:
            remove_run(self._host.run_files, order.run.id, order.keep_kinds)


def _unfit(because: Because, reason: str) -> Refusal:
    return Refusal(because=because, reason=reason, remedy=f"make the run fit the transfer backend: {reason}")


def _check_input(ticket: TransferTicket, output: Output, prefix: str) -> None:
    """Among uploads, only what the run got may come back."""
    if output.kind != OUTPUT or prefix not in FROM_INPUTS:
        return
    if output.relative_path not in {f"{item.family.value}/{item.name}" for item in ticket.inputs}:
        raise Refused(f"{output.relative_path} is none of the run's inputs", code="files.bad_name")
