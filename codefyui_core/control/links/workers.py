"""Enrolled workers in the database: looked up, updated from what agents say, removed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import bindparam, delete, insert, select, update
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from codefyui_core.control.db.database import Database
from codefyui_core.control.db.tables import catalogs, enrollment_tokens, revoked_credentials, workers
from codefyui_core.plugin.values import JsonObject
from codefyui_core.wire.messages import DeviceInfo

from .errors import CredentialRevoked, NotEnrolled, WorkerNotFound
from .secrets import CREDENTIAL, digest


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """An enrolled worker, as stored."""

    id: str
    name: str
    machine_id: str | None = None
    home_id: str | None = None
    platform: str = ""
    drained: bool = False
    disabled: bool = False
    device_policies: Mapping[str, str] = field(default_factory=dict)
    last_agent_one_shot: bool = False
    last_one_shot_run: str | None = None
    """Which run its last one-shot agent took; None: it has taken none."""
    devices: tuple[DeviceInfo, ...] = ()
    version: str = ""
    connector: str = ""
    address: str = ""
    plain_http: bool = False
    trust: JsonObject | None = None
    catalog_hash: str | None = None
    fingerprint: str | None = None
    plugins: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, JsonObject | None] = field(default_factory=dict)
    link_id: str | None = None
    created_at: int = 0
    last_seen: int | None = None


def worker_of(row: Row[Any]) -> WorkerRow:
    """A row of the table ``workers``."""
    stored: dict[str, Any] = dict(row._mapping)
    for name in ("name_key", "credential_hash"):
        del stored[name]
    for name in ("device_policies", "plugins", "facts"):
        stored[name] = stored[name] or {}
    for name in ("platform", "version", "connector", "address"):
        stored[name] = stored[name] or ""
    stored["devices"] = tuple(DeviceInfo.model_validate(one) for one in stored["devices"] or ())
    return WorkerRow(**stored)


_BY_CREDENTIAL = select(workers).where(workers.c.credential_hash == bindparam("hashed"))
"""Each request of an agent asks it, and a statement of so many columns takes long to make."""


class Workers:
    """The tables ``workers``, ``revoked_credentials`` and ``catalogs``."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def authenticate(self, credential: str) -> WorkerRow:
        """Raises: CredentialRevoked, NotEnrolled."""
        if not CREDENTIAL.match(credential):
            raise NotEnrolled("That is not a worker's credential.")
        hashed = digest(credential)
        async with self._db.read() as connection:
            row = (await connection.execute(_BY_CREDENTIAL, {"hashed": hashed})).one_or_none()
            if row is not None:
                return worker_of(row)
            gone = select(revoked_credentials).where(revoked_credentials.c.hash == hashed)
            revoked = (await connection.execute(gone)).one_or_none()
        if revoked is not None:
            raise CredentialRevoked(revoked.name, revoked.why, hashed)
        raise NotEnrolled("No worker is enrolled here with that credential.")

    async def all(self) -> list[WorkerRow]:
        """By name."""
        async with self._db.read() as connection:
            rows = (await connection.execute(select(workers).order_by(workers.c.name_key))).all()
        return [worker_of(row) for row in rows]

    async def get(self, worker_id: str) -> WorkerRow | None:
        async with self._db.read() as connection:
            row = (await connection.execute(select(workers).where(workers.c.id == worker_id))).one_or_none()
        return None if row is None else worker_of(row)

    async def by_name(self, name: str) -> WorkerRow | None:
        """Names are compared without case."""
        async with self._db.read() as connection:
            row = await find_name(connection, name)
        return None if row is None else worker_of(row)

    async def update(self, worker_id: str, **values: object) -> WorkerRow:
        """Raises: WorkerNotFound when it was removed meanwhile."""
        async with self._db.begin() as connection:
            await connection.execute(update(workers).where(workers.c.id == worker_id).values(**values))
            row = (await connection.execute(select(workers).where(workers.c.id == worker_id))).one_or_none()
        if row is None:
            raise WorkerNotFound("That worker was removed.")
        return worker_of(row)

    async def seen(self, worker_ids: Sequence[str], at_ms: int) -> None:
        """They were connected until then; all in one transaction."""
        if worker_ids:
            async with self._db.begin() as connection:
                seen = update(workers).where(workers.c.id.in_(worker_ids))
                await connection.execute(seen.values(last_seen=at_ms))

    async def catalog(self, catalog_hash: str) -> Mapping[str, str] | None:
        """Node types and definition hashes of a catalog that some agent has reported."""
        async with self._db.read() as connection:
            found = select(catalogs.c.types).where(catalogs.c.hash == catalog_hash)
            types: Mapping[str, str] | None = (await connection.execute(found)).scalar_one_or_none()
        return types

    async def keep_catalog(self, catalog_hash: str, types: Mapping[str, str], at_ms: int) -> None:
        async with self._db.begin() as connection:
            await connection.execute(delete(catalogs).where(catalogs.c.hash == catalog_hash))
            row = {"hash": catalog_hash, "types": dict(types), "seen_at": at_ms}
            await connection.execute(insert(catalogs).values(**row))


async def find_name(connection: AsyncConnection, name: str) -> Row[Any] | None:
    """The row of a worker by its name, without case."""
    found = select(workers).where(workers.c.name_key == name.lower())
    return (await connection.execute(found)).one_or_none()


async def remove(connection: AsyncConnection, worker_id: str, at_ms: int) -> None:
    """Its credential is refused as revoked from now on, tokens bound to it enroll nobody, its name is free.
    Of one that is gone already there is nothing to do: an earlier commit came through unheard.
    """
    row = (await connection.execute(select(workers).where(workers.c.id == worker_id))).one_or_none()
    if row is None:
        return
    await revoke_hash(connection, row.credential_hash, row.name, "removed", at_ms)
    bound = update(enrollment_tokens).where(enrollment_tokens.c.worker == row.name)
    await connection.execute(bound.values(revoked=True))
    await connection.execute(delete(workers).where(workers.c.id == worker_id))


async def revoke_hash(
    connection: AsyncConnection, credential_hash: str, name: str, why: str, at_ms: int
) -> None:
    """Answer 'revoked' to that credential from now on. ``why``: removed or rekeyed."""
    row = {"hash": credential_hash, "name": name, "why": why, "at": at_ms}
    await connection.execute(delete(revoked_credentials).where(revoked_credentials.c.hash == credential_hash))
    await connection.execute(insert(revoked_credentials).values(**row))
