"""An agent trades an enrollment token for a credential of its own, in one transaction (T11). Where that changes
the credential of a worker that there is, its runs end in the same one.
"""

import re
import uuid
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.engine import Row
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from codefyui_core.control.db.database import Database
from codefyui_core.control.db.tables import enrollment_tokens, enrollments, workers
from codefyui_core.control.db.times import milliseconds
from codefyui_core.plugin.hosts import Clock
from codefyui_core.runs.options import worker_name_problem

from .errors import BadRequest, EnrollmentRefused
from .secrets import Token, digest, fits, make_credential, read_token
from .workers import find_name, revoke_hash

NONCE = re.compile(r"^[A-Za-z0-9_-]{16,64}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrollRequest:
    """What an agent sends."""

    token: str
    name: str | None
    nonce: str
    """Made by the agent and stored before it asks: a repeat with it is the same enrollment."""
    machine_id: str
    platform: str
    link_id: str | None = None
    """The link whose listener it came in by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolled:
    """What became of it."""

    credential: str
    worker_id: str
    name: str
    rekeyed: bool = False
    """The worker existed: its old credential is revoked."""
    repeated: bool = False


class Moved(Exception):
    """Whom the request concerns changed since it was looked at: look again."""


class Enrollment:
    """Spends tokens."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def whose(self, request: EnrollRequest) -> str | None:
        """The id of the worker whose credential it would change; None: it would enroll a new one. Writes nothing.

        Raises: EnrollmentRefused, BadRequest.
        """
        async with self._db.read() as connection:
            found = await self._spending(connection, request).find()
        return None if found.worker is None else found.worker.id

    async def enroll(self, request: EnrollRequest) -> Enrolled:
        """A new worker, in a transaction of its own. A refusal spends no use.

        Raises: EnrollmentRefused, BadRequest, Moved.
        """
        try:
            async with self._db.begin() as connection:
                return await self.spend(connection, request, None)
        except IntegrityError as error:
            raise _taken(request.name or "") from error

    async def spend(
        self, connection: AsyncConnection, request: EnrollRequest, worker_id: str | None
    ) -> Enrolled:
        """The statements of it alone. ``worker_id``: whose credential it changes, as ``whose`` said.

        Raises: EnrollmentRefused, BadRequest, Moved.
        """
        return await self._spending(connection, request).run(worker_id)

    def _spending(self, connection: AsyncConnection, request: EnrollRequest) -> "_Spending":
        token = read_token(request.token)
        if token is None:
            raise EnrollmentRefused("That is no enrollment token. Generate one with Add worker.")
        if not NONCE.match(request.nonce):
            raise BadRequest("nonce has to be 16 to 64 letters, digits, - and _.")
        return _Spending(connection, request, token, milliseconds(self._clock))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What the request comes to, as things stand."""

    token: Row[Any]
    name: str
    worker: Row[Any] | None
    """Who gets a new credential; None: a new worker is enrolled."""
    repeated: bool = False


class _Spending:
    """One enrollment inside its transaction."""

    def __init__(self, connection: AsyncConnection, request: EnrollRequest, token: Token, now: int) -> None:
        self.connection = connection
        self.request = request
        self.token = token
        self.now = now

    async def find(self) -> _Found:
        """Reads only."""
        row = await self._token_row()
        if (again := await self._enrolled_before(row)) is not None:
            return _Found(token=row, name=again.name, worker=again, repeated=True)
        if row.uses_left <= 0:
            raise _used_up()
        name = self._name(row)
        known = await find_name(self.connection, name)
        if known is not None and row.worker is None:
            raise _taken(known.name)
        return _Found(token=row, name=name, worker=known)

    async def run(self, worker_id: str | None) -> Enrolled:
        found = await self.find()
        known = found.worker
        if (None if known is None else known.id) != worker_id:
            raise Moved
        if known is not None and found.repeated:
            credential = await self._new_credential(known.id)
            return Enrolled(credential=credential, worker_id=known.id, name=known.name, repeated=True)
        await self._spend(found.token)
        enrolled = await (self._new(found.name) if known is None else self._rekey(known))
        values = {
            "token_id": found.token.id,
            "nonce": self.request.nonce,
            "worker_id": enrolled.worker_id,
            "at": self.now,
        }
        await self.connection.execute(insert(enrollments).values(**values))
        return enrolled

    async def _token_row(self) -> Row[Any]:
        found = select(enrollment_tokens).where(enrollment_tokens.c.id == self.token.id)
        row = (await self.connection.execute(found)).one_or_none()
        if row is None or not fits(self.token.text, row.hash):
            raise EnrollmentRefused(
                "This control plane doesn't know that enrollment token. Is it the one that made it? "
                "Generate a new one with Add worker."
            )
        if row.revoked or row.hidden:
            message = "This enrollment token was revoked. Generate a new one with Add worker."
            raise EnrollmentRefused(message, code="enrollment.revoked")
        if row.expires_at <= self.now:
            message = "This enrollment token has expired. Generate a new one with Add worker."
            raise EnrollmentRefused(message, code="enrollment.expired")
        if row.link_id is not None and row.link_id != self.request.link_id:
            message = "This enrollment token belongs to an SSH worker and is good through its tunnel alone."
            raise EnrollmentRefused(message, code="enrollment.bound")
        return row

    async def _enrolled_before(self, token_row: Row[Any]) -> Row[Any] | None:
        """The reply to this very request was lost: its worker, which gets a fresh credential."""
        before = select(enrollments.c.worker_id).where(
            enrollments.c.token_id == token_row.id, enrollments.c.nonce == self.request.nonce
        )
        worker_id = (await self.connection.execute(before)).scalar_one_or_none()
        if worker_id is None:
            return None
        found = select(workers).where(workers.c.id == worker_id)
        worker = (await self.connection.execute(found)).one_or_none()
        if worker is None:
            message = "The worker that this token enrolled was removed. Generate a new token with Add worker."
            raise EnrollmentRefused(message, code="enrollment.used_up")
        return worker

    def _name(self, token_row: Row[Any]) -> str:
        name = self.request.name or token_row.worker
        if not name:
            raise BadRequest("name is missing.")
        if problem := worker_name_problem(name):
            raise BadRequest(problem)
        if token_row.worker is not None and token_row.worker.lower() != name.lower():
            raise EnrollmentRefused(
                f"This token is for the worker {token_row.worker} alone. Start the agent with "
                f"--name {token_row.worker}, or generate an ordinary token with Add worker.",
                code="enrollment.bound",
            )
        return str(name)

    async def _spend(self, row: Row[Any]) -> None:
        left = enrollment_tokens.c.uses_left
        spend = update(enrollment_tokens).where(enrollment_tokens.c.id == row.id, left > 0)
        if (await self.connection.execute(spend.values(uses_left=left - 1))).rowcount != 1:
            raise _used_up()

    async def _new(self, name: str) -> Enrolled:
        credential, worker_id = make_credential(), uuid.uuid4().hex
        row = {
            "id": worker_id,
            "name": name,
            "name_key": name.lower(),
            "credential_hash": digest(credential),
            "machine_id": self.request.machine_id,
            "platform": self.request.platform,
            "link_id": self.request.link_id,
            "created_at": self.now,
        }
        await self.connection.execute(insert(workers).values(**row))
        return Enrolled(credential=credential, worker_id=worker_id, name=name)

    async def _rekey(self, known: Row[Any]) -> Enrolled:
        await revoke_hash(self.connection, known.credential_hash, known.name, "rekeyed", self.now)
        credential = await self._new_credential(known.id)
        return Enrolled(credential=credential, worker_id=known.id, name=known.name, rekeyed=True)

    async def _new_credential(self, worker_id: str) -> str:
        credential = make_credential()
        values = {
            "credential_hash": digest(credential),
            "machine_id": self.request.machine_id,
            "platform": self.request.platform,
            "home_id": None,
        }
        await self.connection.execute(update(workers).where(workers.c.id == worker_id).values(**values))
        return credential


def _used_up() -> EnrollmentRefused:
    message = "This enrollment token is used up. Generate a new one with Add worker."
    return EnrollmentRefused(message, code="enrollment.used_up")


def _taken(name: str) -> EnrollmentRefused:
    return EnrollmentRefused(
        f"A worker named {name} is enrolled already. Choose another name with --name, or press Re-key on its "
        f"card for a token that gives it a new credential.",
        code="enrollment.name_taken",
    )
