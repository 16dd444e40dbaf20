"""The lock that makes a control plane the only writer of its database."""

import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from filelock import FileLock, Timeout
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from codefyui_core.errors import CodefyError

ADVISORY_KEY = 0x4344_5549_0001
"""PostgreSQL's advisory locks are numbers within one database."""

Release = Callable[[], Awaitable[None]]


def _busy(holder: str) -> CodefyError:
    return CodefyError(
        f"Another control plane writes to this database already ({holder}). "
        "Stop it first with cdui stop, or give this one a database of its own (CODEFYUI_DATABASE_URL).",
        code="server.busy",
    )


async def hold_file(folder: Path) -> Release:
    """Hold ``server.lock`` in ``folder``; the operating system lets go of it when this process ends.

    Raises: CodefyError ``server.busy`` with the holder's pid.
    """
    owner = folder / "server.lock.pid"
    lock = FileLock(folder / "server.lock", timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise _busy(f"pid {_read(owner)}") from error
    owner.write_text(f"{os.getpid()}\n", encoding="ascii")

    async def release() -> None:
        owner.unlink(missing_ok=True)
        lock.release()

    return release


def _read(owner: Path) -> str:
    try:
        return owner.read_text(encoding="ascii").strip() or "unknown"
    except (OSError, UnicodeDecodeError):
        return "unknown"


async def hold_advisory(engine: AsyncEngine) -> Release:
    """Hold PostgreSQL's advisory lock on a connection of its own, for as long as that connection lives.

    Raises: CodefyError ``server.busy`` naming the holder's pid and host, as it told the database.
    """
    connection = await engine.connect()
    try:
        await _introduce(connection)
        taken = await connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": ADVISORY_KEY})
        holder = None if taken else await _holder(connection)
        await connection.commit()
    except BaseException:
        await connection.close()
        raise
    if holder is not None:
        await connection.close()
        raise _busy(holder)

    async def release() -> None:
        await connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": ADVISORY_KEY})
        await connection.close()

    return release


async def _introduce(connection: AsyncConnection) -> None:
    name = f"codefyui pid {os.getpid()} on {socket.gethostname()}"[:63]
    await connection.execute(text("SELECT set_config('application_name', :name, false)"), {"name": name})


_HOLDER = text(
    "SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid "
    "WHERE l.locktype = 'advisory' AND l.granted "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND l.classid::bigint = :high AND l.objid::bigint = :low"
)


async def _holder(connection: AsyncConnection) -> str:
    parameters = {"high": ADVISORY_KEY >> 32, "low": ADVISORY_KEY & 0xFFFF_FFFF}
    name = await connection.scalar(_HOLDER, parameters)
    return str(name) if name else "unknown"
