"""Uploaded files of one family: checked names, bytes counted as they arrive, whole or not at all."""

import asyncio
import errno
import hashlib
import unicodedata
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TypeVar

from codefyui_core.errors import BadName, CodefyError
from codefyui_core.files import Family, SafeFolder, sha256_of, spelled_below
from codefyui_core.portable_names import check_name

T = TypeVar("T")

EXTENSIONS: dict[Family, frozenset[str]] = {
    Family.MODELS: frozenset({".pt", ".pth", ".safetensors", ".ckpt", ".bin"}),
    Family.IMAGES: frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tiff"}),
    Family.FILES: frozenset({".csv", ".tsv", ".txt", ".json"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploads:
    """The folder of one family."""

    family: Family
    folder: Path
    limit_bytes: int
    _placing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def name_of(self, given: str | None) -> str:
        """The last part of the path that a browser sent, checked; names are composed (NFC).

        Raises: CodefyError ``upload.bad_name`` or ``upload.bad_type``.
        """
        name = unicodedata.normalize("NFC", PurePosixPath((given or "").replace("\\", "/")).name)
        try:
            check_name(name, windows=True)  # uploads travel to workers on any system
        except BadName as error:
            raise CodefyError(
                f"{error.message} Rename the file and upload it again.", code="upload.bad_name"
            ) from None
        allowed = EXTENSIONS[self.family]
        if PurePosixPath(name).suffix.lower() not in allowed:
            raise CodefyError(
                f"{name} can't be a file of {self.family.value}: it takes {', '.join(sorted(allowed))}.",
                code="upload.bad_type",
            )
        return name

    async def store(
        self, given: str | None, chunks: AsyncIterator[bytes], *, overwrite: bool
    ) -> dict[str, Any]:
        """Take one file in. The same content under the same name writes nothing.

        Returns: ``{name, size_bytes, sha256, replaced}``.
        Raises: CodefyError ``request.too_large``, ``upload.exists``, ``storage.full``.
        """
        name = self.name_of(given)
        try:
            return await self._store(name, chunks, overwrite=overwrite)
        except _Same as same:
            return {**same.stored, "replaced": False}
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise CodefyError(
                    f"The disk is full: {name} wasn't stored. Free some space and upload it again.",
                    code="storage.full",
                ) from error
            raise

    async def _store(self, name: str, chunks: AsyncIterator[bytes], *, overwrite: bool) -> dict[str, Any]:
        with await asyncio.to_thread(SafeFolder, self.folder, create=True) as folder, ExitStack() as undo:
            writing = folder.write(name)
            out = await _through(lambda: undo.enter_context(writing))
            size, sha256 = await self._take(name, chunks, out)
            async with self._placing:
                before = await asyncio.to_thread(self._present, name)
                stored = {"name": name, "size_bytes": size, "sha256": sha256, "replaced": before is not None}
                if before == sha256:
                    raise _Same(stored)
                if before is not None and not overwrite:
                    raise CodefyError(
                        f"Another file named {name} is there. Rename yours, or replace it with ?overwrite=1.",
                        code="upload.exists",
                    )
                undo.pop_all()
                await asyncio.to_thread(writing.__exit__, None, None, None)
        return stored

    async def _take(self, name: str, chunks: AsyncIterator[bytes], out: BinaryIO) -> tuple[int, str]:
        digest = hashlib.sha256()
        size = 0

        def keep(chunk: bytes) -> None:
            digest.update(chunk)
            out.write(chunk)

        async for chunk in chunks:
            size += len(chunk)
            if size > self.limit_bytes:
                raise CodefyError(
                    f"{name} is larger than {self.limit_bytes} bytes (CODEFYUI_MAX_UPLOAD_SIZE).",
                    code="request.too_large",
                )
            await _through(partial(keep, chunk))
        return size, digest.hexdigest()

    def _present(self, name: str) -> str | None:
        path = self.folder / name
        return sha256_of(path) if path.is_file() and not path.is_symlink() else None

    def list(self) -> list[dict[str, Any]]:
        """``{name, size_bytes, modified}``, nested ones by relative name."""
        if not self.folder.is_dir():
            return []
        with SafeFolder(self.folder) as folder:
            rows = [
                {"name": name, "size_bytes": stat.st_size, "modified": stat.st_mtime}
                for name, stat in folder.walk()
                if PurePosixPath(name).suffix.lower() in EXTENSIONS[self.family]
            ]
        return sorted(rows, key=lambda row: str(row["name"]))

    @contextmanager
    def open(self, name: str) -> Iterator[tuple[BinaryIO, Path]]:
        """The file and its path, for sending: the handle is of what was looked at, whatever is swapped meanwhile.

        Raises: CodefyError ``upload.not_found`` or ``files.bad_name``.
        """
        with ExitStack() as held:
            try:
                folder = held.enter_context(SafeFolder(self.folder))
                spelled = self._spelled(name)
                file = held.enter_context(folder.read(spelled))
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                raise self._missing(name) from None
            yield file, self.folder / spelled

    def delete(self, name: str) -> None:
        """Raises: CodefyError ``upload.not_found`` or ``files.bad_name``."""
        with self.open(name):
            pass
        with SafeFolder(self.folder) as folder:
            folder.remove(self._spelled(name))

    def _spelled(self, name: str) -> str:
        """In the form of composition that is there."""
        return spelled_below(self.folder, check_name(name)).relative_to(self.folder).as_posix()

    def _missing(self, name: str) -> CodefyError:
        return CodefyError(f"There is no file {name} in {self.family.value}.", code="upload.not_found")


class _Same(Exception):
    """Leaves the write block without renaming: the file is there already."""

    def __init__(self, stored: dict[str, Any]) -> None:
        super().__init__()
        self.stored = stored


async def _through(work: Callable[[], T]) -> T:
    """In a thread, and to its end also when the upload is cut meanwhile: what it opened is there to be undone."""
    doing = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait({doing})
        raise
