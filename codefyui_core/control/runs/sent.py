"""Runs that wait, read for sending: their record, and their document with what isn't stored of it."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sqlalchemy import select

from codefyui_core.control.db.database import Database
from codefyui_core.control.db.tables import runs
from codefyui_core.errors import CodefyError
from codefyui_core.graph import Definitions
from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import RunStatus
from codefyui_core.runs.record import RunRecord
from codefyui_core.wire.messages import DeviceInfo

from .board import Board
from .documents import complete
from .rows import record_of, records


class CatalogView(Protocol):
    """What runs need of the catalog."""

    @property
    def definitions(self) -> Definitions: ...
    @property
    def devices(self) -> Sequence[DeviceInfo]: ...


class Sent:
    """Reads the database beside the writer."""

    def __init__(self, db: Database, board: Board, catalog: Callable[[], CatalogView | None]) -> None:
        self._db = db
        self._board = board
        self._catalog = catalog

    async def waiting(self, run_id: str) -> tuple[RunRecord, JsonObject] | None:
        """A run that waits, and its document. None: it doesn't wait any more.

        Only who holds a run's slot makes an attempt of it, and the transaction for that looks again.

        Raises: CodefyError ``server.busy`` while the node definitions aren't there.
        """
        async with self._db.read() as connection:
            row = (await connection.execute(records().where(runs.c.id == run_id))).one_or_none()
            stored = await connection.scalar(select(runs.c.document).where(runs.c.id == run_id))
        record = None if row is None else record_of(row)
        if record is None or record.status is not RunStatus.QUEUED:
            return None
        return record, self._complete(run_id, stored)

    async def document(self, run_id: str) -> JsonObject:
        """Of a run that was sent before.

        Raises: CodefyError ``server.busy`` when it is gone, or the node definitions aren't there.
        """
        async with self._db.read() as connection:
            stored = await connection.scalar(select(runs.c.document).where(runs.c.id == run_id))
        return self._complete(run_id, stored)

    def _complete(self, run_id: str, stored: Any) -> JsonObject:
        catalog = self._catalog()
        if stored is None or catalog is None:
            raise CodefyError("the run is gone", code="server.busy")
        return complete(stored, self._board.secrets.get(run_id), catalog.definitions)
