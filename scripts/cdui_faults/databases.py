"""The database of a schedule, as one who isn't the server sees it: it is read, held up and killed from outside."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from .postgres import PostgreSQL

Row = Mapping[str, Any]
PATIENCE_S = 4.0
"""How long one that wants to hold the database up waits for its turn."""
READ_S = 30.0


class DatabaseKind(StrEnum):
    """Which one the server is given."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


class Store(Protocol):
    """One of them."""

    kind: DatabaseKind

    @property
    def url(self) -> str: ...

    @property
    def up(self) -> bool:
        """It is there and isn't held up by us."""

    def rows(self, query: str, **values: str) -> Sequence[Row]:
        """``:name`` in the query stands for a value."""

    def hold(self, seconds: float, over: Callable[[], None]) -> None:
        """Nobody else can write for that long. Returns at once; ``over`` is called at the end."""

    def close(self) -> None: ...


class _Holding:
    """A thread that holds a database up."""

    def __init__(self) -> None:
        self.now = 0

    def hold(self, work: Callable[[], None], over: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            finally:
                self.now -= 1
                over()

        self.now += 1
        threading.Thread(target=run, name="hold", daemon=True).start()


class Sqlite:
    """A file."""

    kind = DatabaseKind.SQLITE

    def __init__(self, path: Path) -> None:
        self._path = path
        self._holding = _Holding()

    @property
    def url(self) -> str:
        return f"sqlite+aiosqlite:///{self._path}"

    @property
    def up(self) -> bool:
        return not self._holding.now

    def rows(self, query: str, **values: str) -> Sequence[Row]:
        with closing(self._connect("ro", READ_S)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query, values)]

    def hold(self, seconds: float, over: Callable[[], None]) -> None:
        def work() -> None:
            with suppress(sqlite3.Error), closing(self._connect("rw", PATIENCE_S)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                time.sleep(seconds)
                connection.execute("ROLLBACK")

        self._holding.hold(work, over)

    def close(self) -> None:
        pass

    def _connect(self, mode: str, patience_s: float) -> sqlite3.Connection:
        uri = f"file:{self._path}?mode={mode}"
        return sqlite3.connect(uri, uri=True, timeout=patience_s, isolation_level=None)


class Postgres:
    """A server of our own."""

    kind = DatabaseKind.POSTGRESQL

    def __init__(self) -> None:
        self.server = PostgreSQL.open()
        self._holding = _Holding()

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def up(self) -> bool:
        return self.server.up and not self._holding.now

    def rows(self, query: str, **values: str) -> Sequence[Row]:
        for number, name in enumerate(values, start=1):
            query = query.replace(f":{name}", f"${number}")

        async def fetch() -> Sequence[Row]:
            connection = await self._connect()
            try:
                found = await connection.fetch(query, *values.values(), timeout=READ_S)
                return [dict(row) for row in found]
            finally:
                await connection.close()

        return asyncio.run(fetch())

    def hold(self, seconds: float, over: Callable[[], None]) -> None:
        async def lock() -> None:
            connection = await self._connect()
            try:
                async with connection.transaction():
                    await connection.execute(f"SET LOCAL lock_timeout = '{PATIENCE_S:g}s'")
                    await connection.execute("LOCK TABLE control, runs, attempts, run_events")
                    await asyncio.sleep(seconds)
            finally:
                await connection.close()

        def work() -> None:
            with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
                asyncio.run(lock())

        self._holding.hold(work, over)

    def close(self) -> None:
        self.server.close()

    async def _connect(self) -> Any:
        return await asyncpg.connect(
            host=str(self.server.folder), user="faults", database="faults", timeout=READ_S
        )


def open_store(kind: DatabaseKind, server_data: Path) -> Store:
    """Raises: CodefyError when what it needs isn't installed."""
    return Postgres() if kind is DatabaseKind.POSTGRESQL else Sqlite(server_data / "codefyui.db")
