"""Enrollment tokens in the database: made, listed, revoked, hidden."""

import shlex
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import delete, insert, select, update
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from codefyui_core.control.db.database import Database
from codefyui_core.control.db.tables import enrollment_tokens, enrollments
from codefyui_core.control.db.times import milliseconds
from codefyui_core.plugin.hosts import Clock
from codefyui_core.plugin.values import JsonObject

from .errors import BadRequest, TokenNotFound
from .secrets import Token, digest, make_token

DEFAULT_VALID_S = 24 * 3600
MAX_VALID_S = 366 * 24 * 3600
MAX_USES = 10_000
_FORGET_AFTER_MS = MAX_VALID_S * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """What is asked for."""

    valid_s: float = DEFAULT_VALID_S
    uses: int = 1
    worker: str | None = None
    """The name that it enrolls, or re-keys if that worker exists; None: any free name."""
    link_id: str | None = None


class Tokens:
    """All of them."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def make(self, asked: NewToken) -> tuple[str, JsonObject]:
        """The token, shown this once, and its row.

        Raises: BadRequest.
        """
        if not 1 <= asked.valid_s <= MAX_VALID_S:
            raise BadRequest(f"valid_s has to be between 1 and {MAX_VALID_S} seconds.")
        if not 1 <= asked.uses <= MAX_USES:
            raise BadRequest(f"uses has to be between 1 and {MAX_USES}.")
        now = milliseconds(self._clock)
        async with self._db.begin() as connection:
            await self._forget_old(connection, now)
            token = make_token()
            while await _find(connection, token.id) is not None:
                token = make_token()
            row = _row(token, asked, now)
            await connection.execute(insert(enrollment_tokens).values(**row))
        return token.text, _shown(row, now)

    async def list(self) -> list[JsonObject]:
        """Newest first, without their secrets and without the hidden ones."""
        order = enrollment_tokens.c.created_at.desc()
        shown = select(enrollment_tokens).where(enrollment_tokens.c.hidden.is_(False)).order_by(order)
        async with self._db.read() as connection:
            rows = (await connection.execute(shown)).all()
        now = milliseconds(self._clock)
        return [_shown(dict(row._mapping), now) for row in rows]

    async def revoke(self, token_id: str) -> JsonObject:
        """It enrolls nobody any more, and stays listed.

        Raises: TokenNotFound.
        """
        return await self._change(token_id, revoked=True)

    async def hide(self, token_id: str) -> None:
        """Off the list. Its hash stays, so that it is answered 'revoked' and not 'unknown'.

        Raises: TokenNotFound.
        """
        await self._change(token_id, revoked=True, hidden=True)

    async def _change(self, token_id: str, **values: bool) -> JsonObject:
        async with self._db.begin() as connection:
            row = await _find(connection, token_id)
            if row is None or row.hidden:
                raise TokenNotFound(f"There is no enrollment token {token_id}.")
            of_it = enrollment_tokens.c.id == token_id
            await connection.execute(update(enrollment_tokens).where(of_it).values(**values))
        return _shown(dict(row._mapping) | values, milliseconds(self._clock))

    async def _forget_old(self, connection: AsyncConnection, now: int) -> None:
        old = enrollment_tokens.c.expires_at < now - _FORGET_AFTER_MS
        ids = select(enrollment_tokens.c.id).where(old)
        await connection.execute(delete(enrollments).where(enrollments.c.token_id.in_(ids)))
        await connection.execute(delete(enrollment_tokens).where(old))


def _row(token: Token, asked: NewToken, now: int) -> dict[str, object]:
    return {
        "id": token.id,
        "hash": digest(token.text),
        "uses": asked.uses,
        "uses_left": asked.uses,
        "expires_at": now + int(asked.valid_s * 1000),
        "revoked": False,
        "hidden": False,
        "worker": asked.worker,
        "link_id": asked.link_id,
        "created_at": now,
    }


async def _find(connection: AsyncConnection, token_id: str) -> Row[tuple[object, ...]] | None:
    found = select(enrollment_tokens).where(enrollment_tokens.c.id == token_id)
    return (await connection.execute(found)).one_or_none()


def _shown(row: dict[str, object], now: int) -> JsonObject:
    expires_at, uses_left = row["expires_at"], row["uses_left"]
    assert isinstance(expires_at, int)
    assert isinstance(uses_left, int)
    uses, worker, created_at = row["uses"], row["worker"], row["created_at"]
    assert isinstance(uses, int)
    assert isinstance(created_at, int)
    return {
        "id": str(row["id"]),
        "uses": uses,
        "uses_left": uses_left,
        "worker": None if worker is None else str(worker),
        "created_at": rfc3339(created_at),
        "expires_at": rfc3339(expires_at),
        "revoked": bool(row["revoked"]),
        "state": _state(bool(row["revoked"]), expires_at <= now, uses_left),
    }


def _state(revoked: bool, expired: bool, uses_left: int) -> str:
    if revoked:
        return "revoked"
    if expired:
        return "expired"
    return "used_up" if uses_left == 0 else "valid"


def command(address: str, token: str, *, name: str | None = None, options: tuple[str, ...] = ()) -> str:
    """What a person runs on the worker's machine."""
    words = ["cdui", "agent", "start", "--control", address, "--token", token]
    words += ["--name", name] if name else []
    return shlex.join([*words, *options])


def rfc3339(at_ms: int) -> str:
    """``2026-01-01T00:00:00.000Z``."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1000:03d}Z"
