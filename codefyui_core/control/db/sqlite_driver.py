"""SQLite connections whose statements each cost one trip to the connection's thread.

``aiosqlite`` makes four: for the cursor, the statement, the rows and the close. A trip takes as long as a small
statement, and there are a dozen statements in a transaction that stores events.
"""

import sqlite3
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from typing import Any, Self

import aiosqlite


class Connection(aiosqlite.Connection):
    """Made by ``creator``; SQLAlchemy adapts it like any other of ``aiosqlite``."""

    def cursor(self) -> "Cursor":  # type: ignore[override]  # it's awaitable and a context, as there
        return Cursor(self)

    def in_thread(self, work: Callable[[sqlite3.Connection], None]) -> Awaitable[None]:
        """Run ``work`` on the connection's thread."""
        running: Awaitable[None] = self._execute(lambda: work(self._conn))  # type: ignore[no-untyped-call]  # in aiosqlite
        return running


class Cursor:
    """Rows are fetched with their statement, so that whatever comes after it needs no thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rows: list[Any] = []
        self.description: Any = None
        self.rowcount = -1
        self.lastrowid: int | None = None
        self.arraysize = 1

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> Self:
        await self._connection.in_thread(
            lambda connection: self._keep(connection.execute(statement, parameters))
        )
        return self

    async def executemany(self, statement: str, parameters: Iterable[Sequence[Any]]) -> Self:
        await self._connection.in_thread(
            lambda connection: self._keep(connection.executemany(statement, parameters))
        )
        return self

    def _keep(self, cursor: sqlite3.Cursor) -> None:
        self._rows = cursor.fetchall() if cursor.description else []
        self.description, self.rowcount, self.lastrowid = (
            cursor.description,
            cursor.rowcount,
            cursor.lastrowid,
        )
        cursor.close()

    async def fetchone(self) -> Any:
        return self._rows.pop(0) if self._rows else None

    async def fetchmany(self, size: int | None = None) -> Sequence[Any]:
        count = self.arraysize if size is None else size
        taken, self._rows = self._rows[:count], self._rows[count:]
        return taken

    async def fetchall(self) -> Sequence[Any]:
        taken, self._rows = self._rows, []
        return taken

    async def close(self) -> None:
        self._rows = []


def creator(*arguments: Any, **options: Any) -> Callable[[], Awaitable[Connection]]:
    """For ``create_async_engine``; takes what ``sqlite3.connect`` takes."""

    async def connect() -> Connection:
        connection = Connection(lambda: sqlite3.connect(*arguments, **options), iter_chunk_size=64)
        connection._thread.daemon = True  # one that nobody closed mustn't keep a process from ending
        await connection
        return connection

    return connect
