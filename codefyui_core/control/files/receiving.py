"""Files that arrive piece by piece: continued where they broke off, placed once, never over another file.

A file's bytes gather in a hidden file of the folder that it is for. The name it gets is committed before the hidden file
is linked to it, so that whoever repeats the last step after a crash finds what the first try did.
"""

import asyncio
import contextlib
import errno
import hashlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from sqlalchemy import ColumnElement, RowMapping, and_, insert, select, update

from codefyui_core.control.db.database import Database
from codefyui_core.control.db.tables import uploads
from codefyui_core.control.db.times import milliseconds
from codefyui_core.errors import BadName, CodefyError
from codefyui_core.files import SafeFolder
from codefyui_core.ids import RunId, Sha256
from codefyui_core.plugin.storage import Arrived, Arriving

RECEIVING, CHOSEN, PLACED = "receiving", "chosen", "placed"
GATHER_BYTES = 1 << 20
"""Of what arrives, before a thread writes and hashes it."""
Key = tuple[str, str]


@dataclass(slots=True)
class _Begun:
    """The hash of the beginning of a file, as far as it is known."""

    digest: "hashlib._Hash"
    n_bytes: int = 0


class Receiving:
    """Implements ``plugin.hosts.Arrivals``; the only writer of the table ``uploads``. One process writes a folder's
    hidden files.
    """

    def __init__(self, db: Database, *, limit_bytes: int) -> None:
        self._db = db
        self._limit_bytes = limit_bytes
        self._turns: dict[Key, asyncio.Lock] = {}
        self._begun: dict[Key, _Begun] = {}

    async def offset(self, file: Arriving) -> int:
        row = await self._row(_is(file))
        if row is not None and row["state"] == PLACED:
            return int(row["size_bytes"])
        return await asyncio.to_thread(_size, file)

    async def append(self, file: Arriving, offset: int, chunks: AsyncIterator[bytes]) -> int:
        async with self._turn(file):
            await self._open(file)
            size = await asyncio.to_thread(_size, file)
            if offset != size:
                raise CodefyError(
                    f"{file.name} goes on at byte {size}, not at {offset}. Ask for the offset and continue there.",
                    code="upload.offset",
                )
            with _full_disk(file.name):
                return await self._take(file, offset, chunks)

    async def finish(self, file: Arriving, *, size_bytes: int, sha256: Sha256) -> Arrived:
        async with self._turn(file):
            row = await self._row(_is(file))
            if row is not None and row["state"] == CHOSEN:
                row = await self._after_a_crash(file, row)
            if row is not None and row["state"] == PLACED:
                return _arrived(file.folder, row)
            await self._check(file, size_bytes, sha256)
            with _full_disk(file.name):
                return await self._place(file, size_bytes, sha256)

    async def arrived(self, run: RunId, key: str) -> Arrived | None:
        row = await self._row(and_(uploads.c.run_id == run, uploads.c.item_id == key))
        if row is None or row["state"] != PLACED or row["folder"] is None:
            return None
        return _arrived(Path(row["folder"]), row)

    async def forget(self, run: RunId) -> None:
        unfinished = and_(uploads.c.run_id == run, uploads.c.state != PLACED, uploads.c.folder.is_not(None))
        async with self._db.read() as connection:
            rows = (await connection.execute(select(uploads).where(unfinished))).mappings().all()
        for row in rows:
            with contextlib.suppress(BadName):
                folder, name = Path(row["folder"]), row["relative_path"]
                await self._drop(Arriving(run_id=run, key=row["item_id"], folder=folder, name=name))

    async def forget_run(self, run_id: str) -> None:
        """The run is about to be removed, whichever backend had it."""
        await self.forget(RunId(run_id))

    async def _drop(self, file: Arriving) -> None:
        async with self._turn(file):
            self._begun.pop(_key(file), None)
            await asyncio.to_thread(_remove_part, file)
            async with self._db.begin() as connection:
                await connection.execute(uploads.delete().where(_is(file), uploads.c.state != PLACED))

    # ------------------------------------------------------------ bytes

    async def _take(self, file: Arriving, offset: int, chunks: AsyncIterator[bytes]) -> int:
        if offset == 0:
            self._begun[_key(file)] = _Begun(hashlib.sha256())
        begun = self._begun.get(_key(file))
        hashing = begun if begun is not None and begun.n_bytes == offset else None
        with SafeFolder(file.folder, create=True) as folder:
            writing = folder.append(_part(file), offset)
            out = await asyncio.to_thread(writing.__enter__)
            try:
                async for gathered in _gathered(chunks):
                    offset += len(gathered)
                    if offset > self._limit_bytes:
                        raise CodefyError(
                            f"{file.name} is larger than {self._limit_bytes} bytes (CODEFYUI_MAX_UPLOAD_SIZE).",
                            code="request.too_large",
                        )
                    await asyncio.to_thread(_write, out, gathered, hashing)
            finally:
                await asyncio.to_thread(writing.__exit__, None, None, None)
        return offset

    async def _check(self, file: Arriving, size_bytes: int, sha256: Sha256) -> None:
        begun = self._begun.pop(_key(file), None)
        try:
            size = await asyncio.to_thread(_size_of_part, file)
            if begun is None or begun.n_bytes != size:
                begun = await asyncio.to_thread(_hashed, file)
        except FileNotFoundError:
            raise CodefyError(f"Nothing of {file.name} is here. Send it.", code="upload.not_found") from None
        if (size, begun.digest.hexdigest()) != (size_bytes, sha256):
            await asyncio.to_thread(_remove_part, file)
            raise CodefyError(
                f"{file.name} arrived with other content than it was sent with ({size} of {size_bytes} bytes, or "
                "another hash). Send it again from the start.",
                code="upload.mismatch",
            )

    # ------------------------------------------------------------ names

    async def _place(self, file: Arriving, size_bytes: int, sha256: Sha256) -> Arrived:
        await asyncio.to_thread(_make_parents, file)
        for name in _names(file.name):
            there = await asyncio.to_thread(_content, file.folder, name, size_bytes)
            if there is not None and there != sha256:
                continue
            values = {"final_path": name, "size_bytes": size_bytes, "sha256": sha256}
            await self._keep(file, state=CHOSEN, **values)
            if there is None:
                try:
                    await asyncio.to_thread(_link, file, name)
                except FileExistsError:
                    continue
            return await self._done(file, values)
        raise AssertionError("names don't end")

    async def _after_a_crash(self, file: Arriving, row: RowMapping) -> RowMapping | None:
        """Whether the file got the chosen name is to be seen from its content."""
        there = await asyncio.to_thread(_content, file.folder, row["final_path"], row["size_bytes"])
        if there != row["sha256"]:
            return None
        await self._done(file, {name: row[name] for name in ("final_path", "size_bytes", "sha256")})
        return await self._row(_is(file))

    async def _done(self, file: Arriving, values: dict[str, Any]) -> Arrived:
        await self._keep(file, state=PLACED, **values)
        await asyncio.to_thread(_remove_part, file)
        return _arrived(file.folder, values)

    # ------------------------------------------------------------ rows

    async def _row(self, which: ColumnElement[bool]) -> RowMapping | None:
        async with self._db.read() as connection:
            found = await connection.execute(select(uploads).where(which))
            return found.mappings().one_or_none()

    async def _open(self, file: Arriving) -> None:
        row = await self._row(_is(file))
        if row is None:
            values = {
                "run_id": file.run_id,
                "item_id": file.key,
                "state": RECEIVING,
                "folder": str(file.folder),
                "relative_path": file.name,
                "created_at": milliseconds(self._db.clock),
            }
            async with self._db.begin() as connection:
                await connection.execute(insert(uploads), values)
        elif row["state"] == PLACED:
            raise CodefyError(f"{file.name} is here already.", code="upload.exists")

    async def _keep(self, file: Arriving, **values: Any) -> None:
        async with self._db.begin() as connection:
            await connection.execute(update(uploads).where(_is(file)).values(**values))

    @contextlib.asynccontextmanager
    async def _turn(self, file: Arriving) -> AsyncIterator[None]:
        """One at a time a file: a repetition may come while the first try still runs."""
        lock = self._turns.setdefault(_key(file), asyncio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._turns.pop(_key(file), None)


def _key(file: Arriving) -> Key:
    return (file.run_id, file.key)


def _is(file: Arriving) -> ColumnElement[bool]:
    return and_(uploads.c.run_id == file.run_id, uploads.c.item_id == file.key)


def _arrived(folder: Path, row: Any) -> Arrived:
    return Arrived(
        path=folder / row["final_path"],
        relative_path=row["final_path"],
        size_bytes=row["size_bytes"],
        sha256=Sha256(row["sha256"]),
    )


def _names(name: str) -> Iterator[str]:
    """``models/a.pt``, ``models/a-1.pt``, ``models/a-2.pt``, ..."""
    path = PurePosixPath(name)
    yield str(path)
    number = 1
    while True:
        yield str(path.with_name(f"{path.stem}-{number}{path.suffix}"))
        number += 1


async def _gathered(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """In larger pieces; what came before a broken line comes before its error, too."""
    held: list[bytes] = []
    size = 0
    try:
        async for chunk in chunks:
            held.append(chunk)
            size += len(chunk)
            if size >= GATHER_BYTES:
                yield b"".join(held)
                held, size = [], 0
    except Exception:
        if held:
            yield b"".join(held)
        raise
    if held:
        yield b"".join(held)


def _write(out: BinaryIO, data: bytes, begun: _Begun | None) -> None:
    out.write(data)
    if begun is not None:
        begun.digest.update(data)
        begun.n_bytes += len(data)


def _part(file: Arriving) -> str:
    """The hidden file that its bytes gather in."""
    digest = hashlib.sha256(f"{file.run_id}\0{file.key}".encode()).hexdigest()
    return f".cdui-{digest[:16]}.part"


def _size_of_part(file: Arriving) -> int:
    return (file.folder / _part(file)).stat().st_size


def _size(file: Arriving) -> int:
    try:
        return _size_of_part(file)
    except FileNotFoundError:
        return 0


def _hashed(file: Arriving) -> _Begun:
    with SafeFolder(file.folder) as folder, folder.read(_part(file)) as part:
        digest = hashlib.file_digest(part, "sha256")  # type: ignore[arg-type]  # no readinto in BinaryIO
        return _Begun(digest, part.tell())


def _content(folder: Path, name: str, size_bytes: int) -> str | None:
    """The hash of what lies there: None for nothing, empty for what is no file, or has another size."""
    try:
        with SafeFolder(folder) as safe, safe.read(name) as file:
            if file.seek(0, 2) != size_bytes:
                return ""
            file.seek(0)
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # no readinto in BinaryIO
    except FileNotFoundError:
        return None
    except BadName:
        return ""


def _make_parents(file: Arriving) -> None:
    """Raises: BadName when one of them is a link or a file: no number behind the name would help."""
    parents = PurePosixPath(file.name).parent
    if parents.parts:
        with SafeFolder(file.folder) as folder:
            folder.make_folder(str(parents))


def _link(file: Arriving, name: str) -> None:
    with SafeFolder(file.folder) as folder:
        folder.rename(_part(file), name)


def _remove_part(file: Arriving) -> None:
    with contextlib.suppress(FileNotFoundError), SafeFolder(file.folder) as folder:
        folder.remove(_part(file))


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
