"""The table ``uploads``. What is written while another transaction runs goes into the next one, together: many small
files at once cost few commits.
"""

import asyncio
from collections.abc import Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Executable, RowMapping, bindparam, delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from codefyui_core.control.db.database import Database
from codefyui_core.control.db.tables import artifacts, uploads
from codefyui_core.control.db.times import milliseconds
from codefyui_core.ids import RunId, Sha256
from codefyui_core.plugin.storage import Arriving
from codefyui_core.runs.status import ArtifactState

RECEIVING, CHOSEN, PLACED = "receiving", "chosen", "placed"

_MEANT = (uploads.c.run_id == bindparam("run"), uploads.c.item_id == bindparam("key"))
_FIND = select(uploads).where(*_MEANT)
_FIND_ALL = select(uploads).where(
    uploads.c.run_id == bindparam("run"), uploads.c.item_id.in_(bindparam("keys", expanding=True))
)
_UNFINISHED = select(uploads).where(
    uploads.c.run_id == bindparam("run"), uploads.c.state != PLACED, uploads.c.folder.is_not(None)
)
_UNLISTED = (
    select(uploads)
    .outerjoin(
        artifacts,
        (artifacts.c.run_id == uploads.c.run_id) & (artifacts.c.artifact_id == uploads.c.item_id),
    )
    .where(
        uploads.c.run_id == bindparam("run"),
        uploads.c.state == PLACED,
        uploads.c.folder.is_not(None),
        or_(artifacts.c.state.is_(None), artifacts.c.state == ArtifactState.ON_WORKER.value),
    )
)
_ADD = insert(uploads)
_ADD_CHOSEN = insert(uploads)
_KEEP = (
    update(uploads)
    .where(*_MEANT)
    .values({name: bindparam(f"new_{name}") for name in ("state", "final_path", "size_bytes", "sha256")})
)
_PLACE = update(uploads).where(*_MEANT).values(state=PLACED)
_DROP = delete(uploads).where(*_MEANT, uploads.c.state != PLACED)


class Named(NamedTuple):
    """A file for which a name is chosen."""

    file: Arriving
    name: str
    size_bytes: int
    sha256: Sha256


_Statement = tuple[Executable, Sequence[dict[str, Any]]]


class _Write(NamedTuple):
    statements: Sequence[_Statement]
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

    async def find_all(self, run: RunId, keys: Sequence[str]) -> dict[str, RowMapping]:
        """By key."""
        async with self._db.read() as connection:
            found = await connection.execute(_FIND_ALL, {"run": run, "keys": keys})
            return {row["item_id"]: row for row in found.mappings()}

    async def unfinished(self, run: RunId) -> Sequence[Arriving]:
        """Those that can be found on the disk."""
        async with self._db.read() as connection:
            rows = (await connection.execute(_UNFINISHED, {"run": run})).mappings().all()
        return [_file(run, row) for row in rows]

    async def unlisted(self, run: RunId) -> Sequence[tuple[Arriving, RowMapping]]:
        """Those that are placed, and that no artifact tells of as stored."""
        async with self._db.read() as connection:
            rows = (await connection.execute(_UNLISTED, {"run": run})).mappings().all()
        return [(_file(run, row), row) for row in rows]

    async def add(self, file: Arriving) -> RowMapping | None:
        """The row that was there before; None: there was none."""
        try:
            await self._write((_ADD, [self._new(file)]))
        except IntegrityError:
            row = await self.find(file.run_id, file.key)
            if row is None:
                raise  # there is no such run any more
            return row
        return None

    async def keep(self, file: Arriving, state: str, values: dict[str, Any]) -> None:
        new = {f"new_{name}": value for name, value in {"state": state, **values}.items()}
        await self._write((_KEEP, [_meant(file) | new]))

    async def drop(self, file: Arriving) -> None:
        """Unless it is placed."""
        await self._write((_DROP, [_meant(file)]))

    async def choose(
        self, *, new: Sequence[Named], known: Sequence[Named], placed: Sequence[Arriving]
    ) -> None:
        """The names of many files, of which some have rows, in one transaction; ``placed`` have theirs already."""
        adding = [self._new(one.file) | _values(one, "") for one in new]
        keeping = [_meant(one.file) | _values(one, "new_") for one in known]
        await self._write(
            (_ADD_CHOSEN, adding), (_KEEP, keeping), (_PLACE, [_meant(file) for file in placed])
        )

    async def settle(self, *, placed: Sequence[Arriving], dropped: Sequence[Arriving]) -> None:
        """What came of many files, in one transaction."""
        await self._write(
            (_PLACE, [_meant(file) for file in placed]), (_DROP, [_meant(file) for file in dropped])
        )

    def _new(self, file: Arriving) -> dict[str, Any]:
        return {
            "run_id": file.run_id,
            "item_id": file.key,
            "state": RECEIVING,
            "folder": str(file.folder),
            "relative_path": file.name,
            "created_at": milliseconds(self._db.clock),
        }

    async def _write(self, *statements: _Statement) -> None:
        """Committed together when it returns."""
        meant = [(statement, values) for statement, values in statements if values]
        if not meant:
            return
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(_Write(meant, done))
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
                for statement, those in groupby(
                    chain.from_iterable(one.statements for one in together), _first
                ):
                    await connection.execute(statement, [row for _, rows in those for row in rows])
        except Exception as error:
            return error
        return None


def _first(statement: _Statement) -> Executable:
    return statement[0]


def _meant(file: Arriving) -> dict[str, Any]:
    return {"run": file.run_id, "key": file.key}


def _values(named: Named, prefix: str) -> dict[str, Any]:
    values = {
        "state": CHOSEN,
        "final_path": named.name,
        "size_bytes": named.size_bytes,
        "sha256": named.sha256,
    }
    return {f"{prefix}{name}": value for name, value in values.items()}


def _file(run: RunId, row: RowMapping) -> Arriving:
    return Arriving(run_id=run, key=row["item_id"], folder=Path(row["folder"]), name=row["relative_path"])


def _answer(write: _Write, error: Exception | None) -> None:
    if write.done.done():
        return  # whoever asked has left
    if error is None:
        write.done.set_result(None)
    else:
        write.done.set_exception(error)
