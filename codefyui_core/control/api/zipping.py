"""A folder as a zip, made while it is read: nothing of it is gathered in memory or on the disk."""

import io
from collections.abc import Generator
from pathlib import Path
from time import localtime
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from codefyui_core.files import SafeFolder

PIECE_BYTES = 1 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The first moment that a zip can hold (APPNOTE.TXT, 4.4.6)."""


class _Gathered(io.RawIOBase):
    """What was written since the last look. It can't seek, so sizes follow the files."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]  # zipfile gives bytes
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


def zipped(folder: Path) -> Generator[bytes]:
    """Every regular file below, uncompressed: models and events hardly shrink. Blocking, piece by piece.

    A link is left out. A file that goes away meanwhile is left out, too.
    """
    out = _Gathered()
    with SafeFolder(folder) as safe, ZipFile(out, "w", ZIP_STORED) as archive:
        for name, found in safe.walk():
            try:
                source = safe.read(name)
            except FileNotFoundError:
                continue
            moment = localtime(found.st_mtime)[:6]
            info = ZipInfo(name, date_time=moment if moment >= _EPOCH else _EPOCH)
            with source, archive.open(info, "w", force_zip64=True) as target:
                while piece := source.read(PIECE_BYTES):
                    target.write(piece)
                    yield out.take()
    yield out.take()
