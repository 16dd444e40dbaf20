"""What a storage backend has to see of a batch before it is taken in: its agent half's messages, and the
receipts of published files. I/O ahead of the fold, idempotent by the artifact's id.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic import ValidationError

from codefyui_core.clocks import AttentiveClock
from codefyui_core.errors import Busy, StorageProblem
from codefyui_core.plugin.storage import Assignment, Output, StorageControl, StoredObject
from codefyui_core.runs.events import ArtifactRow, Derived, EventType, artifact_key, derive
from codefyui_core.runs.record import RunRecord
from codefyui_core.runs.status import ArtifactState
from codefyui_core.wire.messages import Item, ItemKind

from .board import Board
from .fold import Batch
from .grants import assignment
from .offers import Storages
from .stream import Beside, number

NOWHERE = "worker"
"""The ``backend`` of files of a run without one: they are on its worker."""


class _Seen(NamedTuple):
    """What a backend makes of an ``artifact`` item."""

    row: ArtifactRow
    why: str = ""
    """It isn't taken, for this reason."""


class Receipts:
    """Asks the backends. ``window_s``: how long one may say Busy before a file counts as left on its worker."""

    def __init__(
        self, *, board: Board, storages: Storages, clock: AttentiveClock, log: logging.Logger, window_s: float
    ) -> None:
        self._board = board
        self._storages = storages
        self._clock = clock
        self._log = log
        self._window_s = window_s
        self._busy_since: dict[tuple[str, str], float] = {}

    async def look(self, record: RunRecord, batch: Batch) -> Beside | None:
        """None: hold the batch back, the backend can't answer now."""
        accepted: dict[int, Derived] = {}
        left: dict[int, str] = {}
        for numbered in number(batch.first, batch.items):
            if numbered.last <= record.now.position:
                continue
            try:
                seen = await self._look_at(record, numbered.item)
            except Busy as error:
                self._log.info("run %s: a batch waits for its storage backend (%s)", record.id, error)
                return None
            if seen is not None:
                accepted[numbered.first] = Derived(artifacts=(seen.row,))
                if seen.why:
                    left[numbered.first] = f"{seen.row.name} stays on the worker: {seen.why}"
        return Beside(accepted=accepted, left=left)

    async def _look_at(self, record: RunRecord, item: Item) -> "_Seen | None":
        if item.kind is ItemKind.TOLD:
            await self._tell(record, item.payload)
        if item.kind is ItemKind.EVENT and item.type == EventType.ARTIFACT:
            return await self._artifact(record, item.payload)
        return None

    async def _tell(self, record: RunRecord, payload: Mapping[str, Any]) -> None:
        message = payload.get("message")
        if record.now.backend not in self._storages.backends or not isinstance(message, dict):
            return
        given, store = self._store(record)
        if given is None or store is None:
            if self._waited_enough(record.id, ""):
                self._log.warning("run %s: its storage backend isn't on; a message to it is lost", record.id)
                return
            raise _not_on(record)
        try:
            await store.told(given, message)
        except Busy:
            raise
        except StorageProblem as error:
            self._log.warning("run %s: its storage backend refused a message: %s", record.id, error)

    def _store(self, record: RunRecord) -> tuple[Assignment | None, StorageControl | None]:
        given = assignment(self._board, self._storages, record)
        return given, None if given is None else self._storages.stores[record.now.backend or ""]

    async def _artifact(self, record: RunRecord, payload: Mapping[str, Any]) -> "_Seen | None":
        """The row of a file that a worker published, or left where it is: of that, the worker has told."""
        rows = derive(EventType.ARTIFACT, payload).artifacts
        if not rows:
            return None
        row = rows[0]
        receipt = payload.get("receipt")
        if not isinstance(receipt, dict) or record.now.backend not in self._storages.backends:
            backend = record.now.backend or NOWHERE
            why = f"this server has no storage backend {backend}" if isinstance(receipt, dict) else ""
            return _Seen(_changed(row, backend=backend, state=ArtifactState.ON_WORKER), why)
        given, store = self._store(record)
        try:
            if given is None or store is None:
                raise _not_on(record)
            stored = await self._accept(record, store, given, row, receipt)
        except Busy as error:
            if self._waited_enough(record.id, row.artifact_id):
                return _Seen(_changed(row, state=ArtifactState.ON_WORKER), error.message)
            raise
        except (StorageProblem, ValidationError) as error:
            self._log.warning("run %s: %s stays on its worker: %s", record.id, row.name, error)
            why = error.message if isinstance(error, StorageProblem) else "its receipt can't be read"
            return _Seen(_changed(row, state=ArtifactState.ON_WORKER), why)
        self._busy_since.pop((record.id, row.artifact_id), None)
        return _Seen(stored_row(stored, record.now.backend or row.backend, row))

    async def _accept(
        self,
        record: RunRecord,
        store: StorageControl,
        given: Assignment,
        row: ArtifactRow,
        receipt: dict[str, Any],
    ) -> StoredObject:
        model = self._storages.backends[record.now.backend or ""].receipt
        output = Output(
            key=row.artifact_id,
            kind=row.kind,
            name=row.name,
            relative_path=row.relative_path or row.name,
            node_id=row.node_id,
            size_bytes=row.size_bytes,
        )
        return await store.accept(given, output, model.model_validate(receipt))

    def forget(self, run_id: str) -> None:
        """Nothing more comes from the run."""
        for key in [key for key in self._busy_since if key[0] == run_id]:
            del self._busy_since[key]

    def _waited_enough(self, run_id: str, artifact_id: str) -> bool:
        since = self._busy_since.setdefault((run_id, artifact_id), self._clock.monotonic())
        return self._clock.monotonic() - since > self._window_s


def _not_on(record: RunRecord) -> Busy:
    """After a start of the server, backends come one by one."""
    return Busy(f"the storage backend {record.now.backend} isn't on")


def stored_row(stored: StoredObject, backend: str, said: ArtifactRow | None = None) -> ArtifactRow:
    """What a backend says of an object, as a row; ``said`` is what the run said of it."""
    return ArtifactRow(
        artifact_id=artifact_key(stored.key),
        kind=stored.kind,
        name=stored.name,
        backend=backend,
        label=stored.label,
        relative_path=stored.relative_path,
        path=None if said is None else said.path,
        size_bytes=stored.size_bytes,
        sha256=stored.sha256,
        state=ArtifactState.STORED,
        node_id=None if said is None else said.node_id,
        meta=None if said is None else said.meta,
        data=dict(stored.data),
    )


def _changed(row: ArtifactRow, *, state: ArtifactState, backend: str | None = None) -> ArtifactRow:
    return replace(row, state=state.value, backend=backend or row.backend)
