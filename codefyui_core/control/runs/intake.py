"""Storing a submitted run (T1): one row, which a repeated submit finds again."""

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import insert, select

from codefyui_core.control.db.database import Database
from codefyui_core.control.db.tables import runs
from codefyui_core.errors import CodefyError
from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import RunStatus
from codefyui_core.runs.options import RunOptions, WorkerTarget
from codefyui_core.runs.record import RunRecord
from codefyui_core.runs.steps import Change

from .board import FILES, TARGET, Board, Request
from .checkout import Checkout, CheckoutState
from .documents import Prepared
from .naming import new_run_id
from .revoking import is_enrolled
from .submit import Judged, unknown_worker
from .unit import Unit
from .writer import Writer

MAX_NAME = 64
MAX_SUBMIT_ID = 64


class Intake:
    """Numbers runs in order of submission."""

    def __init__(
        self,
        *,
        db: Database,
        writer: Writer,
        board: Board,
        now_ms: Callable[[], int],
        pins: Mapping[str, str],
        checkout: Checkout,
    ) -> None:
        self._db = db
        self._writer = writer
        self._board = board
        self._now_ms = now_ms
        self._pins = dict(pins)
        self._checkout = checkout
        self._seq = 0

    def start(self, last_seq: int) -> None:
        self._seq = last_seq

    async def known(self, submit_id: str | None) -> JsonObject | None:
        """The run that was stored for a submit of that id."""
        if submit_id is None:
            return None
        if not 1 <= len(submit_id) <= MAX_SUBMIT_ID:
            raise CodefyError("submit_id has 1 to 64 characters.", code="request.invalid")
        found = select(runs.c.id, runs.c.status).where(runs.c.submit_id == submit_id)
        async with self._db.read() as connection:
            row = (await connection.execute(found)).one_or_none()
        return None if row is None else {"run_id": row.id, "status": row.status}

    async def store(
        self, prepared: Prepared, judged: Judged, options: RunOptions, name: str, submit_id: str | None
    ) -> Request | str:
        """The request that waits now; or the id of the run that the same submit had made."""
        state = await self._checkout.now()
        self._seq += 1
        request = Request(
            run_id=new_run_id(self._now_ms()),
            seq=self._seq,
            name=name or prepared.name[:MAX_NAME],
            queue_key=judged.queue_key,
            needs=judged.needs,
            options=options,
            has_secrets=prepared.secrets is not None,
            graph_hash=prepared.graph_hash,
        )
        self._board.requests[request.run_id] = request
        if prepared.secrets is not None:
            self._board.secrets[request.run_id] = prepared.secrets
        try:
            stored = await self._writer.run(
                lambda unit: self._insert(unit, request, prepared, judged, submit_id, state)
            )
        except BaseException:
            self._forget(request.run_id)
            raise
        if stored != request.run_id:
            self._forget(request.run_id)
            return stored
        return request

    def _forget(self, run_id: str) -> None:
        self._board.requests.pop(run_id, None)
        self._board.secrets.pop(run_id, None)

    async def _insert(
        self,
        unit: Unit,
        request: Request,
        prepared: Prepared,
        judged: Judged,
        submit_id: str | None,
        state: CheckoutState,
    ) -> str:
        same = runs.c.id == request.run_id
        if submit_id is not None:
            same |= runs.c.submit_id == submit_id
        known = (await unit.connection.execute(select(runs.c.id).where(same))).scalar()
        if known is not None and known != request.run_id:
            return str(known)
        if known is None:
            await _check_worker(unit, request)
            values = self._values(request, prepared, judged, submit_id, unit.at_ms)
            values |= {"git_commit": state.commit, "git_dirty": state.dirty}
            await unit.connection.execute(insert(runs).values(**values))
        record = RunRecord(
            id=request.run_id,
            queue_seq=request.seq,
            name=request.name,
            status=RunStatus.QUEUED,
            queue_key=request.queue_key,
            has_secrets=request.has_secrets,
            worker_name=judged.worker_name,
        )
        unit.changes.append(Change(before=record, after=record))
        return request.run_id

    def _values(
        self, request: Request, prepared: Prepared, judged: Judged, submit_id: str | None, at_ms: int
    ) -> dict[str, Any]:
        return {
            "id": request.run_id,
            "queue_seq": request.seq,
            "submit_id": submit_id,
            "name": request.name,
            "status": RunStatus.QUEUED.value,
            "document": prepared.stored,
            "has_secrets": request.has_secrets,
            "options": request.options.model_dump(mode="json", exclude={"target"}),
            "target": stored_target(request),
            "device": request.needs.device,
            "files": FILES.dump_python(request.needs.files, mode="json"),
            "node_types": sorted(request.needs.node_types),
            "queue_key": request.queue_key,
            "graph_hash": request.graph_hash,
            "worker_name": judged.worker_name,
            "plugin_pins": self._pins,
            "created_at": at_ms,
        }


async def _check_worker(unit: Unit, request: Request) -> None:
    """It was there when the run was judged, and may have been removed since.

    Raises: CodefyError ``target.unknown``.
    """
    target = request.needs.target
    if isinstance(target, WorkerTarget) and not await is_enrolled(unit.connection, target.worker):
        raise unknown_worker(target.worker)


def stored_target(request: Request) -> JsonObject:
    """Always one of the object forms."""
    dumped: JsonObject = TARGET.dump_python(request.needs.target, mode="json", exclude_none=True)
    return dumped
