"""Uploaded files of one family: checked names, bytes counted as they arrive, whole or not at all."""

import asyncio
import hashlib
import unicodedata
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from codefyui_core.errors import BadName, CodefyError
from codefyui_core.files import Family, SafeFolder, sha256_of
from codefyui_core.portable_names import check_name

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
        except OSError as error:
            if error.errno == 28:
                raise CodefyError(
                    f"The disk is full: {name} wasn't stored. Free some space and upload it again.",
                    code="storage.full",
                ) from error
            raise

    async def _store(self, name: str, chunks: AsyncIterator[bytes], *, overwrite: bool) -> dict[str, Any]:
        digest = hashlib.sha256()
        size = 0
        before = await asyncio.to_thread(self._present, name)
        try:
            with SafeFolder(self.folder, create=True) as folder, folder.write(name) as out:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > self.limit_bytes:
                        raise CodefyError(
                            f"{name} is larger than {self.limit_bytes} bytes (CODEFYUI_MAX_UPLOAD_SIZE).",
                            code="request.too_large",
                        )
                    digest.update(chunk)
                    await asyncio.to_thread(out.write, chunk)
                if before == digest.hexdigest():
                    raise _Same
                if before is not None and not overwrite:
                    raise CodefyError(
                        f"Another file named {name} is there. Rename yours, or replace it with ?overwrite=1.",
                        code="upload.exists",
                    )
        except _Same:
            return {"name": name, "size_bytes": size, "sha256": before, "replaced": False}
        return {
            "name": name,
            "size_bytes": size,
            "sha256": digest.hexdigest(),
            "replaced": before is not None,
        }

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

    def find(self, name: str) -> Path:
        """The file's path, for sending.

        Raises: CodefyError ``upload.not_found`` or ``files.bad_name``.
        """
        try:
            with SafeFolder(self.folder) as folder, folder.read(name):
                pass
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise self._missing(name) from None
        return self.folder / name

    def delete(self, name: str) -> None:
        """Raises: CodefyError ``upload.not_found`` or ``files.bad_name``."""
        self.find(name)
        with SafeFolder(self.folder) as folder:
            folder.remove(name)

    def _missing(self, name: str) -> CodefyError:
        return CodefyError(f"There is no file {name} in {self.family.value}.", code="upload.not_found")


class _Same(Exception):
    """Leaves the write block without renaming: the file is there already."""
