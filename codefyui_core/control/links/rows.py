"""The rows of ``GET /api/workers``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from codefyui_core.control.db.tables import attempts, runs
from codefyui_core.plugin.values import JsonObject
from codefyui_core.runs.queue import Capacity
from codefyui_core.runs.record import identity
from codefyui_core.runs.status import AttemptState, RunStatus
from codefyui_core.wire.messages import DeviceInfo

from .catalogs import Own, compare
from .session import Session
from .tokens import rfc3339
from .workers import WorkerRow

IN_FLIGHT = (AttemptState.ASSIGNED, AttemptState.ACTIVE, AttemptState.AWAY)


@dataclass(slots=True, kw_only=True)
class Load:
    """What runs take of the workers, by worker and by instance."""

    used: dict[tuple[str, str], int] = field(default_factory=dict)
    """(worker id, device) -> slots."""
    running: dict[str, int] = field(default_factory=dict)
    queued: dict[str, int] = field(default_factory=dict)
    """Worker's name in lower case -> waiting runs that name it."""


async def read_load(connection: AsyncConnection) -> Load:
    """From the tables of runs, which the queue machine keeps."""
    load = Load()
    columns = (attempts.c.worker_id, attempts.c.instance, attempts.c.devices, attempts.c.slots_released)
    held = select(*columns).where(attempts.c.worker_id.is_not(None), attempts.c.state.in_(IN_FLIGHT))
    for worker_id, instance, devices, released in await connection.execute(held):
        place = identity(worker_id, instance)
        load.running[place] = load.running.get(place, 0) + 1
        for device in () if released else devices or ():
            load.used[place, device] = load.used.get((place, device), 0) + 1
    waiting = select(runs.c.worker_name, func.count()).where(
        runs.c.status == RunStatus.QUEUED, runs.c.worker_name.is_not(None)
    )
    for name, number in await connection.execute(waiting.group_by(runs.c.worker_name)):
        load.queued[name.lower()] = number
    return load


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMaker:
    """Puts rows together from what is stored and what the open line says."""

    own: Own
    capacity: Capacity
    machine_id: str
    policy: Callable[[str, str], str]
    """How runs are admitted to a device (second) of a worker's identity (first)."""

    def row(
        self,
        worker: WorkerRow,
        session: Session | None,
        load: Load,
        *,
        types: Mapping[str, frozenset[str]],
        fields: JsonObject,
        now_ms: int,
    ) -> JsonObject:
        """``types``: of stored catalogs, by hash. ``fields``: what storage backends add."""
        catalog = self._catalog(worker, session, types)
        online = session is not None
        last_seen = now_ms if online else worker.last_seen
        machine_id = worker.machine_id if session is None else session.hello.machine_id
        trust = worker.trust if session is None or session.trust is None else session.trust
        return {
            "id": worker.id,
            "name": worker.name,
            "status": self._status(worker, session),
            "status_reason": _reason(session),
            "connected": online,
            "last_seen": None if last_seen is None else rfc3339(last_seen),
            "version": worker.version,
            "connector": worker.connector,
            "address": worker.address,
            "plain_http": worker.plain_http,
            "trust": trust,
            "same_host": machine_id == self.machine_id,
            "one_shot": worker.last_agent_one_shot,
            "one_shot_run": worker.last_one_shot_run if worker.last_agent_one_shot else None,
            "drained": worker.drained,
            "accepting": session.accepting if session is not None else False,
            "platform": worker.platform,
            "devices": self._devices(worker, session, load),
            "mounts": {},
            "catalog": catalog,
            "fingerprint": worker.fingerprint,
            "plugins": dict(worker.plugins),
            "running": load.running.get(worker.id, 0),
            "queued": load.queued.get(worker.name.lower(), 0),
            "catalog_problem": "" if session is None else session.hello.catalog_problem,
            "plugins_failed": self._failed(session),
            **fields,
        }

    def _status(self, worker: WorkerRow, session: Session | None) -> str:
        if worker.disabled:
            return "disabled"
        if session is None:
            return "offline"
        if session.finishing:
            return "degraded"
        own = self.own()
        hashed = session.hello.catalog_hash
        degraded = own is not None and hashed is not None and hashed != own.definitions.hash
        return "degraded" if degraded else "online"

    def _catalog(
        self, worker: WorkerRow, session: Session | None, types: Mapping[str, frozenset[str]]
    ) -> JsonObject | None:
        if session is not None and session.catalog is not None:
            return session.catalog.row()
        hashed = worker.catalog_hash if session is None else session.hello.catalog_hash
        if hashed is None:
            return None
        own = self.own()
        known = types.get(hashed)
        if known is None and not (own is not None and own.definitions.hash == hashed):
            return {"hash": hashed, "missing": [], "extra": []}
        return compare(own, hashed, known or frozenset()).row()

    def _devices(self, worker: WorkerRow, session: Session | None, load: Load) -> list[Any]:
        offered: Sequence[DeviceInfo] = worker.devices if session is None else session.devices
        return [
            {
                "device": device.device,
                "name": device.name,
                "slots": self.capacity.of(worker.name, device.device),
                "used": load.used.get((worker.id, device.device), 0),
                "policy": self.policy(worker.id, device.device),
                "memory_total_bytes": device.memory_total_bytes,
                "memory_free_bytes": None if session is None else device.memory_free_bytes,
            }
            for device in offered
        ]

    def _failed(self, session: Session | None) -> list[Any]:
        return [] if session is None else [one.model_dump() for one in session.hello.plugins_failed]


def _reason(session: Session | None) -> str:
    """Why a connected worker gets no runs, when its status alone doesn't say it."""
    if session is None or not session.finishing:
        return ""
    return f"{session.finishing}; it finishes its runs, gets no new ones, and is refused after the last"
