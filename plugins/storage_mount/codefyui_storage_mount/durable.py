"""Sees to it that what a run wrote on the share is on its file server. Blocking."""

import errno
import hashlib
import os
from pathlib import Path

from codefyui_core.plugin import Progress, Refused, Sha256

_CHUNK_BYTES = 1 << 20
_MODE = "r+b" if os.name == "nt" else "rb"
"""Windows syncs through writable handles alone."""
_TRIES = 3
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)
"""Answers of network file systems that write names at once, and of folders that may only be passed."""


def hash_and_sync(path: Path, root: Path, progress: Progress) -> tuple[Sha256, int]:
    """The file's hash and size, taken of bytes that are on the disk when it returns, as are the folders that
    lead to it from ``root``.

    Raises: Refused when the file isn't there, or doesn't keep still; TransferStopped.
    """
    for _ in range(_TRIES):
        found = _hashed(path, progress)
        if found is not None:
            for folder in (path.parent, *path.parent.parents):
                sync_folder(folder)
                if folder == root:
                    break
            return found
    raise Refused(f"{path} was written to while it was read; record a file once it is finished")


def _hashed(path: Path, progress: Progress) -> tuple[Sha256, int] | None:
    """None: it changed meanwhile."""
    digest = hashlib.sha256()
    try:
        with path.open(_MODE) as file:
            os.fsync(file.fileno())
            before = os.fstat(file.fileno())
            left = before.st_size  # and not to its end: it may grow as fast as it is read
            while left > 0 and (chunk := file.read(min(left, _CHUNK_BYTES))):
                digest.update(chunk)
                left -= len(chunk)
                progress.advance(len(chunk))
            after = path.stat()
    except FileNotFoundError as error:
        raise Refused(
            f"{path} is gone; the run removed what it recorded", code="artifact.not_found"
        ) from error
    same = (before.st_size, before.st_mtime_ns, before.st_ino) == (
        after.st_size,
        after.st_mtime_ns,
        after.st_ino,
    )
    return (Sha256(digest.hexdigest()), before.st_size) if same else None


def sync_tree(folder: Path, progress: Progress) -> None:
    """Every file and folder below ``folder``; links are not followed."""
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place) / name
            if path.is_file() and not path.is_symlink():
                with path.open(_MODE) as file:
                    os.fsync(file.fileno())
                    progress.advance(os.fstat(file.fileno()).st_size)
        sync_folder(Path(place))


def sync_folder(folder: Path) -> None:
    """Make new names in it durable, where the system lets one sync a folder."""
    if os.name == "nt":
        return
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
