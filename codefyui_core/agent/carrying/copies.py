"""Copies of files: by sharing blocks where the file system can, by bytes elsewhere. Blocking."""

import os
import stat
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from codefyui_core.agent.disk import Disk
from codefyui_core.folder_handles import open_directory
from codefyui_core.portable_names import check_name

from .gathered import at_once

PIECE_BYTES = 16 << 20
_FICLONE = 0x40049409
"""``ioctl_ficlone(2)``: Btrfs, XFS, bcachefs, NFS 4.2."""
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_TO_SYNC = os.O_RDWR if os.name == "nt" else os.O_RDONLY
"""Windows syncs through writable handles alone."""


class Stamp(NamedTuple):
    """By what a file is known to be the same as before, without reading it."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, found: os.stat_result) -> "Stamp":
        return cls(found.st_size, found.st_mtime_ns, found.st_ino)


def open_file(path: Path) -> int:
    """For reading; no link is followed in the last step. Raises: OSError, also for what isn't a regular file."""
    descriptor = os.open(path, os.O_RDONLY | _NO_FOLLOW | _BINARY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file")
    return descriptor


def place(root: Path, name: str, source: int, check: Callable[[], None]) -> os.stat_result:
    """A file of its own at ``name`` below ``root`` with the content of an open one; ``check`` may end it.

    Raises: BadName, OSError; what ``check`` raises.
    """
    path = check_name(name)
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = stack.enter_context(open_directory(root))
        for part in path.parts[:-1]:
            with suppress(FileExistsError):
                folder.make(part, 0o700)
            folder = stack.enter_context(folder.child(part))
        with suppress(FileNotFoundError):
            folder.unlink(path.name)
        target = folder.open(path.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            _fill(source, target, check)
            return os.fstat(target)
        finally:
            os.close(target)


def snapshot(source: Path, target: Path) -> None:
    """What ``source`` holds now, at ``target``: shared blocks, else a second name of the same file, else a copy."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    descriptor = open_file(source)
    try:
        if _cloned_to(descriptor, target):
            return
        try:
            target.hardlink_to(source)
        except OSError:
            copy = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)
            try:
                _fill(descriptor, copy, lambda: None)
            finally:
                os.close(copy)
    finally:
        os.close(descriptor)


def taken(given: Path, target: Path) -> Stamp | None:
    """What the run's process kept under ``given``, at ``target`` now. None: it kept nothing."""
    try:
        found = given.lstat()
        if not stat.S_ISREG(found.st_mode):
            return None
        given.replace(target)
    except OSError:
        return None
    return Stamp.of(found)


def _cloned_to(source: int, target: Path) -> bool:
    copy = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)
    try:
        cloned = _clone(source, copy)
    finally:
        os.close(copy)
    if not cloned:
        target.unlink()
    return cloned


def _fill(source: int, target: int, check: Callable[[], None]) -> None:
    if _clone(source, target):
        return
    os.lseek(source, 0, os.SEEK_SET)
    while True:
        check()
        if not _copy_piece(source, target):
            return


def _clone(source: int, target: int) -> bool:
    """False where blocks can't be shared."""
    if sys.platform != "linux":
        return False
    import fcntl

    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


def _copy_piece(source: int, target: int) -> int:
    """How many bytes; 0 at the end."""
    if sys.platform == "linux":
        try:
            if copied := os.copy_file_range(source, target, PIECE_BYTES):
                return copied
        except OSError:
            pass  # other file systems, old kernels: by read and write
    data = os.read(source, PIECE_BYTES)
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]
    return len(data)


def to_disk(paths: Iterable[Path], root: Path, disk: Disk) -> None:
    """What the files hold, and the folders that lead to them from ``root``. One that can't be opened is left out.

    Raises: OSError.
    """
    files = list(paths)
    folders = {folder for path in {path.parent for path in files} for folder in (path, *path.parents)}
    for answer in at_once(partial(_file_to_disk, disk), files):
        if isinstance(answer, Exception):
            raise answer
    for folder in folders:
        if folder == root or folder.is_relative_to(root):
            disk.sync_folder(folder)


def _file_to_disk(disk: Disk, path: Path) -> None:
    try:
        descriptor = os.open(path, _TO_SYNC | _NO_FOLLOW | _BINARY)
    except OSError:
        return  # what is wrong with it shows when it is sent
    try:
        disk.sync(descriptor)
    finally:
        os.close(descriptor)
