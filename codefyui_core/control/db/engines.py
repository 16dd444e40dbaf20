"""Engines for SQLite and PostgreSQL, set up so that a commit that was answered survives a power loss."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from codefyui_core.errors import StartProblem

from .sqlite_driver import creator

BUSY_TIMEOUT_MS = 5_000
READERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """Where to write and where to read; the same engine on PostgreSQL."""

    dialect: str
    writing: AsyncEngine
    reading: AsyncEngine
    file: Path | None
    """The SQLite file."""

    async def dispose(self) -> None:
        await self.reading.dispose()
        if self.writing is not self.reading:
            await self.writing.dispose()


def make_engines(text: str) -> Engines:
    """Engines for a SQLAlchemy URL with an asynchronous driver.

    Raises: StartProblem for another kind of database, or SQLite in memory.
    """
    url = make_url(text)
    dialect = url.get_backend_name()
    if dialect == "sqlite":
        return _sqlite(url)
    if dialect == "postgresql":
        engine = create_async_engine(url, pool_size=8, max_overflow=8, pool_pre_ping=True)
        return Engines(dialect=dialect, writing=engine, reading=engine, file=None)
    raise StartProblem(f"{dialect} isn't supported: CODEFYUI_DATABASE_URL names SQLite or PostgreSQL.")


def _sqlite(url: URL) -> Engines:
    if not url.database or url.database == ":memory:":
        raise StartProblem("The database needs a file: sqlite:////path/to/codefyui.db")
    # One connection writes, so that transactions queue up in this process and never find SQLite busy.
    writing = _sqlite_engine(url, size=1)
    reading = _sqlite_engine(url, size=READERS)
    _prepare(writing, begin="BEGIN IMMEDIATE", pragmas=_writer_pragmas())
    _prepare(reading, begin="BEGIN", pragmas=(f"busy_timeout={BUSY_TIMEOUT_MS}", "query_only=ON"))
    return Engines(dialect="sqlite", writing=writing, reading=reading, file=Path(url.database))


def _sqlite_engine(url: URL, *, size: int) -> AsyncEngine:
    arguments, options = url.get_dialect()().create_connect_args(url)
    return create_async_engine(
        url,
        async_creator=creator(*arguments, **options),
        poolclass=AsyncAdaptedQueuePool,
        pool_size=size,
        max_overflow=0,
    )


def _writer_pragmas() -> tuple[str, ...]:
    """``synchronous=FULL``: with WAL's usual NORMAL a power loss takes back acknowledged commits.
    (https://www.sqlite.org/pragma.html#pragma_synchronous)
    """
    pragmas = (
        f"busy_timeout={BUSY_TIMEOUT_MS}",
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
    )
    return (*pragmas, "fullfsync=ON") if sys.platform == "darwin" else pragmas


def _prepare(engine: AsyncEngine, *, begin: str, pragmas: tuple[str, ...]) -> None:
    """The driver's own transactions are off: it would begin them late, and ignore savepoints.
    (https://docs.sqlalchemy.org/en/20/dialects/sqlite.html#sqlite-transactions)
    """

    @event.listens_for(engine.sync_engine, "connect")
    def _connected(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def _begun(connection: Any) -> None:
        connection.exec_driver_sql(begin)
