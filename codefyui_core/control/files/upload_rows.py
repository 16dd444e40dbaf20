"""The table ``uploads``. What is written while another transaction runs goes into the next one, together: many small
files at once cost few commits.
"""

import asyncio
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Executable, RowMapping, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from codefyui_core.control.db.database import Database
from codefyui_core.control.db.tables import uploads
from codefyui_core.control.db.times import milliseconds
from codefyui_core.ids import RunId
from codefyui_core.plugin.storage import Arriving

RECEIVING, CHOSEN, PLACED = "receiving", "chosen", "placed"

_MEANT = (uploads.c.run_id == bindparam("run"), uploads.c.item_id == bindparam("key"))
_FIND = select(uploads).where(*_MEANT)
_UNFINISHED = select(uploads).where(
    uploads.c.run_id == bindparam("run"), uploads.c.state != PLACED, uploads.c.folder.is_not(None)
)
_ADD = insert(uploads)
_KEEP = (
    update(uploads)
    .where(*_MEANT)
    .values({name: bindparam(f"new_{name}") for name in ("state", "final_path", "size_bytes", "sha256")})
)
_DROP = delete(uploads).where(*_MEANT, uploads.c.state != PLACED)


class _Write(NamedTuple):
    statement: Executable
    values: dict[str, Any]
    done: "asyncio.Future[None]"


class UploadRows:
    """Reads and writes them."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._waiting: list[_Write] = []
        self._writing: asyncio.Task[None] | None = None

    async def find(self, run: RunId, key: str) -> RowMapping | None:
        async with self._db.read() as connection:
            found = await connection.execute(_FIND, {"run": run, "key": key})
            return found.mappings().one_or_none()

    async def unfinished(self, run: RunId) -> Sequence[Arriving]:
        """Those that can be found on the disk."""
        async with self._db.read() as connection:
            rows = (await connection.execute(_UNFINISHED, {"run": run})).mappings().all()
        return [
            Arriving(run_id=run, key=row["item_id"], folder=Path(row["folder"]), name=row["relative_path"])
            for row in rows
        ]

    async def add(self, file: Arriving) -> RowMapping | None:
        """The row that was there before; None: there was none."""
        values = {
            "run_id": file.run_id,
            "item_id": file.key,
            "state": RECEIVING,
            "folder": str(file.folder),
            "relative_path": file.name,
            "created_at": milliseconds(self._db.clock),
        }
        try:
            await self._write(_ADD, values)
        except IntegrityError:
            row = await self.find(file.run_id, file.key)
            if row is None:
                raise  # there is no such run any more
            return row
        return None

    async def keep(self, file: Arriving, state: str, values: dict[str, Any]) -> None:
        new = {f"new_{name}": value for name, value in {"state": state, **values}.items()}
        await self._write(_KEEP, {"run": file.run_id, "key": file.key, **new})

    async def drop(self, file: Arriving) -> None:
        """Unless it is placed."""
        await self._write(_DROP, {"run": file.run_id, "key": file.key})

    async def _write(self, statement: Executable, values: dict[str, Any]) -> None:
        """Committed when it returns."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(_Write(statement, values, done))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all())
        await done

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                together, self._waiting = self._waiting, []
                error = await self._tried(together)
                if error is not None and len(together) > 1:
                    # What one of them did must not fail the others.
                    for one in together:
                        _answer(one, await self._tried([one]))
                    continue
                for one in together:
                    _answer(one, error)
        finally:
            self._writing = None

    async def _tried(self, together: Sequence[_Write]) -> Exception | None:
        try:
            async with self._db.begin() as connection:
                for statement, those in groupby(together, lambda one: one.statement):
                    await connection.execute(statement, [one.values for one in those])
        except Exception as error:
            return error
        return None


def _answer(write: _Write, error: Exception | None) -> None:
    if write.done.done():
        return  # whoever asked has left
    if error is None:
        write.done.set_result(None)
    else:
        write.done.set_exception(error)
