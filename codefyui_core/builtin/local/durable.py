"""Sees to it that what a run wrote in place is on the disk. Blocking."""

import hashlib
import os
from pathlib import Path

from codefyui_core.plugin import Progress, Refused, Sha256

_CHUNK_BYTES = 1 << 20
_MODE = "r+b" if os.name == "nt" else "rb"
"""Windows syncs through writable handles alone."""


def hash_and_sync(path: Path, progress: Progress) -> tuple[Sha256, int]:
    """The file's hash and size, taken of the bytes that are on the disk when it returns.

    Raises: Refused when the file isn't there; TransferStopped.
    """
    digest, size = hashlib.sha256(), 0
    try:
        with path.open(_MODE) as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
                progress.advance(len(chunk))
            os.fsync(file.fileno())
        _sync_folder(path.parent)
    except FileNotFoundError as error:
        raise Refused(
            f"{path} is gone; the run removed what it recorded", code="artifact.not_found"
        ) from error
    return Sha256(digest.hexdigest()), size


def sync_tree(folder: Path, progress: Progress) -> None:
    """Every file and folder below ``folder``; links are not followed."""
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place) / name
            if path.is_file() and not path.is_symlink():
                with path.open(_MODE) as file:
                    os.fsync(file.fileno())
                    progress.advance(path.stat().st_size)
        _sync_folder(Path(place))


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # no handle to a folder can be synced there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
