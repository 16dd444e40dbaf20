"""The open database: one writer at a time, any number of readers, and who this server is to it."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Self

from sqlalchemy import insert, select, update
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from codefyui_core.plugin.hosts import Clock

from . import network_folder
from .engines import Engines, make_engines
from .locks import Release, hold_advisory, hold_file
from .migrate import migrate
from .tables import control

CLOSE_S = 10.0


class Database:
    """Opened once by a control plane. ``begin`` is a write transaction, ``read`` sees what is committed."""

    def __init__(self, engines: Engines, release: Release, clock: Clock) -> None:
        self.clock = clock
        self.db_id = ""
        self.epoch = 0
        """``server_epoch`` of this start."""
        self.shutdown_was = "running"
        """How the last server stopped: running (it didn't), stop, keep, clean."""
        self._engines = engines
        self._release = release
        self._writing = asyncio.Lock()

    @classmethod
    async def open(cls, url: str, *, user_data: Path, clock: Clock, on_network: bool = False) -> Self:
        """Take the writer's lock, migrate, and count this start before anything else is written. ``on_network``: also
        use a SQLite file on a network file system.

        Raises: CodefyError ``server.busy`` naming who holds the database; StartProblem when it can't be used.
        """
        engines = make_engines(url)
        if engines.file is not None and not on_network:
            await asyncio.to_thread(network_folder.check, engines.file)
        release = await _hold(engines, user_data)
        database = cls(engines, release, clock)
        try:
            await migrate(engines.writing)
            await database._count_start()
        except BaseException:
            await database.aclose()
            raise
        return database

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self._engines.dialect

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """A write transaction, committed at the end of the block. Keep it short: on SQLite others wait.
        Errors of the database come as they are; repeating is the caller's.
        """
        turn = self._writing if self.dialect == "sqlite" else nullcontext()
        async with turn, _connected(self._engines.writing) as connection, connection.begin():
            yield connection

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A consistent view of what is committed, for reading only."""
        async with _connected(self._engines.reading) as connection:
            yield connection

    async def mark_shutdown(self, word: str) -> None:
        """Commit how the server stops, before anybody is told: running, stop, keep or clean."""
        async with self.begin() as connection:
            await connection.execute(update(control).values(shutdown=word))

    async def aclose(self) -> None:
        """Close the connections and let go of the lock; writes nothing."""
        try:
            await self._release()
        except (DBAPIError, OSError):
            pass  # the lock went with its connection
        finally:
            with suppress(TimeoutError):  # a connection whose statement was cancelled may never answer
                async with asyncio.timeout(CLOSE_S):
                    await self._engines.dispose()

    async def _count_start(self) -> None:
        async with self.begin() as connection:
            row = (await connection.execute(select(control))).one_or_none()
            if row is None:
                self.db_id, self.epoch = secrets.token_hex(16), 1
                first = {"id": 1, "db_id": self.db_id, "server_epoch": 1, "shutdown": "running"}
                await connection.execute(insert(control), first)
                return
            self.db_id, self.epoch, self.shutdown_was = row.db_id, row.server_epoch + 1, row.shutdown
            await connection.execute(update(control).values(server_epoch=self.epoch))


@asynccontextmanager
async def _connected(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Raises: OperationalError also for what the system says of a server that isn't there, which the driver
    passes on as it is.
    """
    try:
        connection = await engine.connect()
    except OSError as error:
        raise OperationalError(None, None, error) from error
    try:
        yield connection
    finally:
        await connection.close()


async def _hold(engines: Engines, user_data: Path) -> Release:
    if engines.file is None:
        try:
            return await hold_advisory(engines.writing)
        except BaseException:
            await engines.dispose()
            raise
    folder = engines.file.parent if engines.file.is_absolute() else user_data
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return await hold_file(folder)
