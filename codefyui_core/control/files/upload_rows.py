"""The table ``uploads``. What is written while another transaction runs goes into the next one, together: many small
files at once cost few commits.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Executable, RowMapping, and_, insert, select, update

from codefyui_core.control.db.database import Database
from codefyui_core.control.db.tables import uploads
from codefyui_core.control.db.times import milliseconds
from codefyui_core.ids import RunId
from codefyui_core.plugin.storage import Arriving

RECEIVING, CHOSEN, PLACED = "receiving", "chosen", "placed"


class UploadRows:
    """Reads and writes them."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._waiting: list[tuple[Executable, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def find(self, run: RunId, key: str) -> RowMapping | None:
        async with self._db.read() as connection:
            found = await connection.execute(select(uploads).where(_is(run, key)))
            return found.mappings().one_or_none()

    async def unfinished(self, run: RunId) -> Sequence[Arriving]:
        """Those that can be found on the disk."""
        which = and_(uploads.c.run_id == run, uploads.c.state != PLACED, uploads.c.folder.is_not(None))
        async with self._db.read() as connection:
            rows = (await connection.execute(select(uploads).where(which))).mappings().all()
        return [
            Arriving(run_id=run, key=row["item_id"], folder=Path(row["folder"]), name=row["relative_path"])
            for row in rows
        ]

    async def add(self, file: Arriving) -> None:
        values = {
            "run_id": file.run_id,
            "item_id": file.key,
            "state": RECEIVING,
            "folder": str(file.folder),
            "relative_path": file.name,
            "created_at": milliseconds(self._db.clock),
        }
        await self._write(insert(uploads).values(values))

    async def keep(self, file: Arriving, state: str, values: dict[str, Any]) -> None:
        await self._write(
            update(uploads).where(_is(file.run_id, file.key)).values({"state": state, **values})
        )

    async def drop(self, file: Arriving) -> None:
        """Unless it is placed."""
        await self._write(uploads.delete().where(_is(file.run_id, file.key), uploads.c.state != PLACED))

    async def _write(self, statement: Executable) -> None:
        """Committed when it returns."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((statement, done))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all())
        await done

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                together, self._waiting = self._waiting, []
                try:
                    await self._commit([statement for statement, _ in together])
                except Exception:
                    # Whose run was removed meanwhile must not fail the others.
                    for statement, done in together:
                        await self._alone(statement, done)
                else:
                    for _, done in together:
                        _answer(done)
        finally:
            self._writing = None

    async def _alone(self, statement: Executable, done: "asyncio.Future[None]") -> None:
        try:
            await self._commit([statement])
        except Exception as error:
            _answer(done, error)
        else:
            _answer(done)

    async def _commit(self, statements: Sequence[Executable]) -> None:
        async with self._db.begin() as connection:
            for statement in statements:
                await connection.execute(statement)


def _answer(done: "asyncio.Future[None]", error: Exception | None = None) -> None:
    if done.done():
        return  # whoever asked has left
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def _is(run: RunId, key: str) -> ColumnElement[bool]:
    return and_(uploads.c.run_id == run, uploads.c.item_id == key)
