"""Outputs that arrive piece by piece: continued where they broke off, placed once, never over another file.

An item's bytes gather in a hidden file of the folder that it is for. The name it gets is committed before the file
is linked to it, so that whoever repeats the last step after a crash finds what the first try did.
"""

import asyncio
import contextlib
import errno
import hashlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from sqlalchemy import ColumnElement, RowMapping, and_, insert, select, update

from codefyui_core.control.db.database import Database
from codefyui_core.control.db.tables import uploads
from codefyui_core.control.db.times import milliseconds
from codefyui_core.errors import BadName, CodefyError
from codefyui_core.files import SafeFolder, sha256_of
from codefyui_core.portable_names import check_name

RECEIVING, CHOSEN, PLACED = "receiving", "chosen", "placed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where a file came to lie."""

    path: Path
    relative_path: str
    """Below the folder it was for, with the number that its name may have got."""
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What somebody sends. Everything in it but ``folder`` comes from outside."""

    run_id: str
    item_id: str
    """Made where the file arose, so that a repetition is the same item."""
    folder: Path
    name: str
    """POSIX-style, below ``folder``."""

    def __post_init__(self) -> None:
        """Raises: BadName."""
        check_name(self.name)

    @property
    def part(self) -> str:
        """The hidden file that its bytes gather in."""
        digest = hashlib.sha256(f"{self.run_id}\0{self.item_id}".encode()).hexdigest()
        return f".cdui-{digest[:16]}.part"


class Receiving:
    """The only writer of the table ``uploads``. One process writes a folder's hidden files."""

    def __init__(self, db: Database, *, limit_bytes: int) -> None:
        self._db = db
        self._limit_bytes = limit_bytes
        self._turns: dict[tuple[str, str], asyncio.Lock] = {}

    async def offset(self, item: Item) -> int:
        """How many bytes of it are here and synced."""
        row = await self._row(item)
        if row is not None and row["state"] == PLACED:
            return int(row["size_bytes"])
        return await asyncio.to_thread(_size, item)

    async def append(self, item: Item, offset: int, chunks: AsyncIterator[bytes]) -> int:
        """Continue it at ``offset``; the new offset. What arrived before a broken line stays.

        Raises: CodefyError ``upload.offset`` when it has to go on elsewhere, ``request.too_large``,
        ``storage.full``; BadName.
        """
        async with self._turn(item):
            await self._open(item)
            size = await asyncio.to_thread(_size, item)
            if offset != size:
                raise CodefyError(
                    f"{item.name} goes on at byte {size}, not at {offset}. Ask for the offset and continue there.",
                    code="upload.offset",
                )
            with _full_disk(item.name):
                return await self._take(item, offset, chunks)

    async def finish(self, item: Item, *, size_bytes: int, sha256: str) -> Placed:
        """Check it and give it its name: its own, that of a file with the same content, or one with a number.
        The same answer however often it is asked for.

        Raises: CodefyError ``upload.mismatch``; what arrived is dropped then. ``upload.not_found`` when
        nothing of it is here.
        """
        async with self._turn(item):
            row = await self._row(item)
            if row is not None and row["state"] == CHOSEN:
                row = await self._after_a_crash(item, row)
            if row is not None and row["state"] == PLACED:
                return _placed(item, row)
            await self._check(item, size_bytes, sha256)
            with _full_disk(item.name):
                return await self._place(item, size_bytes, sha256)

    async def drop(self, item: Item) -> None:
        """Forget one that isn't placed, with its bytes."""
        async with self._turn(item):
            await asyncio.to_thread(_remove_part, item)
            async with self._db.begin() as connection:
                await connection.execute(uploads.delete().where(_is(item), uploads.c.state != PLACED))

    # ------------------------------------------------------------ bytes

    async def _take(self, item: Item, offset: int, chunks: AsyncIterator[bytes]) -> int:
        with SafeFolder(item.folder, create=True) as folder:
            writing = folder.append(item.part, offset)
            file = await asyncio.to_thread(writing.__enter__)
            try:
                async for chunk in chunks:
                    offset += len(chunk)
                    if offset > self._limit_bytes:
                        raise CodefyError(
                            f"{item.name} is larger than {self._limit_bytes} bytes (CODEFYUI_MAX_UPLOAD_SIZE).",
                            code="request.too_large",
                        )
                    await asyncio.to_thread(file.write, chunk)
            finally:
                await asyncio.to_thread(writing.__exit__, None, None, None)
        return offset

    async def _check(self, item: Item, size_bytes: int, sha256: str) -> None:
        part = item.folder / item.part
        try:
            found = (await asyncio.to_thread(_size, item), await asyncio.to_thread(sha256_of, part))
        except FileNotFoundError:
            raise CodefyError(f"Nothing of {item.name} is here. Send it.", code="upload.not_found") from None
        if found != (size_bytes, sha256):
            await asyncio.to_thread(_remove_part, item)
            raise CodefyError(
                f"{item.name} arrived with other content than it was sent with ({found[0]} of {size_bytes}"
                " bytes, or another hash). Send it again from the start.",
                code="upload.mismatch",
            )

    # ------------------------------------------------------------ names

    async def _place(self, item: Item, size_bytes: int, sha256: str) -> Placed:
        await asyncio.to_thread(_make_parents, item)
        for name in _names(item.name):
            there = await asyncio.to_thread(_content, item.folder, name)
            if there is not None and there != sha256:
                continue
            values = {"final_path": name, "size_bytes": size_bytes, "sha256": sha256}
            await self._keep(item, state=CHOSEN, **values)
            if there is None:
                try:
                    await asyncio.to_thread(_link, item, name)
                except FileExistsError:
                    continue
            return await self._done(item, values)
        raise AssertionError("names don't end")

    async def _after_a_crash(self, item: Item, row: RowMapping) -> RowMapping | None:
        """Whether the file got the chosen name is to be seen from its content."""
        if await asyncio.to_thread(_content, item.folder, row["final_path"]) != row["sha256"]:
            return None
        values = {name: row[name] for name in ("final_path", "size_bytes", "sha256")}
        await self._done(item, values)
        return await self._row(item)

    async def _done(self, item: Item, values: dict[str, Any]) -> Placed:
        await self._keep(item, state=PLACED, **values)
        await asyncio.to_thread(_remove_part, item)
        return _placed(item, values)

    # ------------------------------------------------------------ rows

    async def _row(self, item: Item) -> RowMapping | None:
        async with self._db.read() as connection:
            found = await connection.execute(select(uploads).where(_is(item)))
            return found.mappings().one_or_none()

    async def _open(self, item: Item) -> None:
        row = await self._row(item)
        if row is None:
            values = {
                "run_id": item.run_id,
                "item_id": item.item_id,
                "state": RECEIVING,
                "relative_path": item.name,
                "created_at": milliseconds(self._db.clock),
            }
            async with self._db.begin() as connection:
                await connection.execute(insert(uploads), values)
        elif row["state"] == PLACED:
            raise CodefyError(f"{item.name} is here already.", code="upload.exists")

    async def _keep(self, item: Item, **values: Any) -> None:
        async with self._db.begin() as connection:
            await connection.execute(update(uploads).where(_is(item)).values(**values))

    @contextlib.asynccontextmanager
    async def _turn(self, item: Item) -> AsyncIterator[None]:
        """One at a time an item: a repetition may come while the first try still runs."""
        key = (item.run_id, item.item_id)
        lock = self._turns.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._turns.pop(key, None)


def _is(item: Item) -> ColumnElement[bool]:
    return and_(uploads.c.run_id == item.run_id, uploads.c.item_id == item.item_id)


def _placed(item: Item, row: Any) -> Placed:
    return Placed(
        path=item.folder / row["final_path"],
        relative_path=row["final_path"],
        size_bytes=row["size_bytes"],
        sha256=row["sha256"],
    )


def _names(name: str) -> Iterator[str]:
    """``models/a.pt``, ``models/a-1.pt``, ``models/a-2.pt``, ..."""
    path = PurePosixPath(name)
    yield str(path)
    number = 1
    while True:
        yield str(path.with_name(f"{path.stem}-{number}{path.suffix}"))
        number += 1


def _size(item: Item) -> int:
    try:
        return (item.folder / item.part).stat().st_size
    except FileNotFoundError:
        return 0


def _content(folder: Path, name: str) -> str | None:
    """The hash of what lies there: None for nothing, empty for what is no file."""
    try:
        with SafeFolder(folder) as safe, safe.read(name) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # no readinto in BinaryIO
    except FileNotFoundError:
        return None
    except BadName:
        return ""


def _make_parents(item: Item) -> None:
    """Raises: BadName when one of them is a link or a file: no number behind the name would help."""
    parents = PurePosixPath(item.name).parent
    if parents.parts:
        with SafeFolder(item.folder) as folder:
            folder.make_folder(str(parents))


def _link(item: Item, name: str) -> None:
    with SafeFolder(item.folder) as folder:
        folder.rename(item.part, name)


def _remove_part(item: Item) -> None:
    with contextlib.suppress(FileNotFoundError), SafeFolder(item.folder) as folder:
        folder.remove(item.part)


@contextlib.contextmanager
def _full_disk(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise CodefyError(
            f"The disk is full: {name} wasn't stored. Free some space; it goes on where it stopped.",
            code="storage.full",
        ) from error
