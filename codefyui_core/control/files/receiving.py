"""Files that arrive piece by piece: continued where they broke off, placed once, never over another file.

A file's bytes gather in a hidden file of the folder that it is for. The name it gets is committed before the hidden file
is linked to it, so that whoever repeats the last step after a crash finds what the first try did. The bytes are synced
once, before that: what a crash of the machine leaves of the beginning shows in the hash at the end.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import RowMapping

from codefyui_core.control.db.database import Database
from codefyui_core.errors import BadName, CodefyError
from codefyui_core.ids import RunId, Sha256
from codefyui_core.plugin.storage import Arrived, Arriving, Coming

from . import parts
from .parcels import Parcel
from .parts import Begun, Elsewhere, Part
from .turns import Turns
from .upload_rows import CHOSEN, PLACED, UploadRows

GATHER_BYTES = 2 << 20
"""Of what arrives, before threads write and hash it: as much again is under way."""
Key = tuple[str, str]


class _TooLarge(CodefyError):
    """A file that never fits, so that nothing of it is kept."""

    default_code = "request.too_large"


class Receiving:
    """Implements ``plugin.hosts.Arrivals``; the only writer of the table ``uploads``. One process writes a folder's
    hidden files.
    """

    def __init__(self, db: Database, *, limit_bytes: int) -> None:
        self._rows = UploadRows(db)
        self._limit_bytes = limit_bytes
        self._turns = Turns[Key]()
        self._begun: dict[Key, Begun] = {}
        """Of unfinished files that have a row: what this process knows needn't be read."""

    async def offset(self, file: Arriving) -> int:
        row = await self._rows.find(file.run_id, file.key)
        if row is not None and row["state"] == PLACED:
            return int(row["size_bytes"])
        return await asyncio.to_thread(parts.size_of, file)

    async def append(self, file: Arriving, offset: int, chunks: AsyncIterator[bytes]) -> int:
        async with self._turns.of(_key(file)):
            begun = self._begun.pop(_key(file), None)
            known = None
            if begun is None or begun.n_bytes != offset:
                begun = Begun() if offset == 0 else None
                known = asyncio.create_task(self._know(file, offset))
            try:
                with _full_disk(file.name):
                    return await self._take(file, offset, begun, chunks, known)
            except _TooLarge:
                begun = None
                await asyncio.to_thread(parts.remove, file)
                await self._rows.drop(file)
                raise
            finally:
                if begun is not None and (known is None or _went_well(known)):
                    self._begun[_key(file)] = begun

    async def finish(self, file: Arriving, *, size_bytes: int, sha256: Sha256 | None) -> Arrived:
        async with self._turns.of(_key(file)):
            begun = self._begun.pop(_key(file), None)
            row = None if begun is not None else await self._rows.find(file.run_id, file.key)
            if row is not None and row["state"] == CHOSEN:
                row = await self._after_a_crash(file, row)
            if row is not None and row["state"] == PLACED:
                return _arrived(file.folder, row)
            found = await self._settle(file, begun, size_bytes, sha256)
            with _full_disk(file.name):
                return await self._place(file, size_bytes, found)

    async def take(
        self,
        run: RunId,
        coming: Sequence[Coming],
        chunks: AsyncIterator[bytes],
        agreed: Callable[[], Awaitable[None]],
    ) -> Sequence[Arrived | CodefyError]:
        files = {one.file.key: one.file for one in coming if isinstance(one.file, Arriving)}
        if len(files) < sum(isinstance(one.file, Arriving) for one in coming):
            raise CodefyError("Two of the files have one key.", code="request.invalid")
        async with self._turns.of(*map(_key, files.values())):
            for file in files.values():
                self._begun.pop(_key(file), None)
            return await Parcel(self._rows, run, coming, self._place).taken(chunks, agreed)

    async def arrived(self, run: RunId, key: str) -> Arrived | None:
        return (await self.arrived_among(run, [key])).get(key)

    async def arrived_among(self, run: RunId, keys: Sequence[str]) -> Mapping[str, Arrived]:
        rows = await self._rows.find_all(run, keys)
        return {
            key: _arrived(Path(row["folder"]), row)
            for key, row in rows.items()
            if row["state"] == PLACED and row["folder"] is not None
        }

    async def unlisted(self, run: RunId) -> Sequence[tuple[Arriving, Arrived]]:
        return [(file, _arrived(file.folder, row)) for file, row in await self._rows.unlisted(run)]

    async def forget(self, run: RunId) -> None:
        for file in await self._rows.unfinished(run):
            with contextlib.suppress(BadName):
                await self._drop(file)

    async def forget_run(self, run_id: str) -> None:
        """The run is about to be removed, whichever backend had it."""
        await self.forget(RunId(run_id))

    async def _drop(self, file: Arriving) -> None:
        async with self._turns.of(_key(file)):
            self._begun.pop(_key(file), None)
            row = await self._rows.find(file.run_id, file.key)
            if row is not None and row["state"] == CHOSEN and await self._after_a_crash(file, row):
                return  # it had got its name, so it isn't unfinished
            await asyncio.to_thread(parts.remove, file)
            await self._rows.drop(file)

    # ------------------------------------------------------------ bytes

    async def _know(self, file: Arriving, offset: int) -> None:
        """Have a row for a file. Raises: CodefyError when it is placed."""
        row = await self._rows.find(file.run_id, file.key) if offset else None
        if row is None:
            row = await self._rows.add(file)
        if row is not None and row["state"] == PLACED:
            raise CodefyError(f"{file.name} is here already.", code="upload.exists")

    async def _take(
        self,
        file: Arriving,
        offset: int,
        begun: Begun | None,
        chunks: AsyncIterator[bytes],
        known: "asyncio.Task[None] | None",
    ) -> int:
        """What came is written and hashed while more of it comes, and while its row is committed."""
        part, start = Part(file, offset), offset
        writing: asyncio.Future[None] | None = None
        try:
            async for pieces, n_bytes, is_last in _gathered(chunks):
                offset += n_bytes
                if offset > self._limit_bytes:
                    raise _TooLarge(
                        f"{file.name} is larger than {self._limit_bytes} bytes (CODEFYUI_MAX_UPLOAD_SIZE)."
                    )
                if writing is not None:
                    await asyncio.shield(writing)
                    if known is not None:
                        await asyncio.shield(known)
                writing = asyncio.ensure_future(_kept(part, begun, pieces, is_last=is_last))
            assert writing is not None, "there is a last lot, if an empty one"
            await asyncio.shield(writing)
        except Elsewhere as error:
            raise CodefyError(
                f"{file.name} goes on at byte {error.size}, not at {start}. Ask for the offset and continue there.",
                code="upload.offset",
            ) from None
        finally:
            if writing is not None:
                await asyncio.wait({writing})
                writing.exception()  # the line may have broken before anybody asked for it
            if part.is_open:
                await asyncio.to_thread(part.close)
            if known is not None:
                await self._judge(file, known)
        return offset

    async def _judge(self, file: Arriving, known: "asyncio.Task[None]") -> None:
        """A placed file has no hidden one beside it."""
        try:
            await known
        except CodefyError:
            await asyncio.to_thread(parts.remove, file)
            raise

    async def _settle(
        self, file: Arriving, begun: Begun | None, size_bytes: int, sha256: Sha256 | None
    ) -> Sha256:
        try:
            found = await asyncio.to_thread(parts.settle, file, begun, size_bytes, sha256)
        except FileNotFoundError:
            raise CodefyError(f"Nothing of {file.name} is here. Send it.", code="upload.not_found") from None
        except parts.Unseen:
            raise CodefyError(
                f"The server didn't see all of {file.name} arrive since it started, so it can't say whether that is what "
                "was sent. Give the SHA-256 of the whole file, too.",
                code="upload.needs_hash",
            ) from None
        if isinstance(found, int):
            raise CodefyError(
                f"{file.name} arrived with other content than it was sent with ({found} of {size_bytes} bytes, or "
                "another hash). Send it again from the start.",
                code="upload.mismatch",
            )
        return Sha256(found)

    # ------------------------------------------------------------ names

    async def _place(self, file: Arriving, size_bytes: int, sha256: Sha256) -> Arrived:
        for name in parts.names(file.name):
            there = await asyncio.to_thread(parts.content, file.folder, name, size_bytes)
            if there is not None and there != sha256:
                continue
            values = {"final_path": name, "size_bytes": size_bytes, "sha256": sha256}
            await self._rows.keep(file, CHOSEN, values)
            try:
                await asyncio.to_thread(parts.link if there is None else parts.remove, file, name)
            except FileExistsError:
                continue
            await self._rows.keep(file, PLACED, values)
            return _arrived(file.folder, values)
        raise AssertionError("names don't end")

    async def _after_a_crash(self, file: Arriving, row: RowMapping) -> RowMapping | None:
        """Whether the file got the chosen name is to be seen from its content."""
        there = await asyncio.to_thread(parts.content, file.folder, row["final_path"], row["size_bytes"])
        if there != row["sha256"]:
            return None
        values = {name: row[name] for name in ("final_path", "size_bytes", "sha256")}
        await self._rows.keep(file, PLACED, values)
        await asyncio.to_thread(parts.remove, file)
        return await self._rows.find(file.run_id, file.key)


def _key(file: Arriving) -> Key:
    return (file.run_id, file.key)


def _went_well(task: "asyncio.Task[None]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _arrived(folder: Path, row: Any) -> Arrived:
    return Arrived(
        path=folder / row["final_path"],
        relative_path=row["final_path"],
        size_bytes=row["size_bytes"],
        sha256=Sha256(row["sha256"]),
    )


async def _kept(part: Part, begun: Begun | None, pieces: list[bytes], *, is_last: bool) -> None:
    """Written by one thread and hashed by another, as each takes about as long; no thread works any more when this
    returns or raises.
    """
    work = [asyncio.to_thread(part.write, pieces, is_last=is_last)]
    if begun is not None:
        work.append(asyncio.to_thread(begun.add, pieces))
    for error in await asyncio.gather(*work, return_exceptions=True):
        if error is not None:
            raise error


async def _gathered(chunks: AsyncIterator[bytes]) -> AsyncIterator[tuple[list[bytes], int, bool]]:
    """In larger lots, with their size, and whether it is the last; at least one. What came before a broken line comes
    before its error, too.
    """
    held: list[bytes] = []
    size = 0
    try:
        async for chunk in chunks:
            held.append(chunk)
            size += len(chunk)
            if size >= GATHER_BYTES:
                yield held, size, False
                held, size = [], 0
    except Exception:
        if held:
            yield held, size, False
        raise
    yield held, size, True


@contextlib.contextmanager
def _full_disk(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not parts.is_full(error):
            raise
        raise parts.full(name) from error
