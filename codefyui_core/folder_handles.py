"""One step at a time below an open folder: by handle where the system can, by checked path elsewhere.

No method follows a symbolic link, and none takes more than one part of a name.
"""

import errno
import os
import stat
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

from .errors import BadName

_BINARY = getattr(os, "O_BINARY", 0)
_CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0)
_FOLDER_ONLY = getattr(os, "O_DIRECTORY", 0)
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
"""So that opening a FIFO doesn't wait for its other end."""
_REPARSE_POINT = getattr(stat, "FILE_ATTRIBUTE_REPARSE_POINT", 0x400)


class Directory(ABC):
    """An open folder."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @abstractmethod
    def same(self) -> Self:
        """A second handle of this folder, closed by itself."""

    @abstractmethod
    def _enter(self, part: str) -> Self: ...
    @abstractmethod
    def make(self, part: str, mode: int) -> None:
        """Raises: FileExistsError."""

    @abstractmethod
    def open(self, part: str, flags: int, mode: int = 0o644) -> int:
        """A file descriptor, opened with ``flags``."""

    @abstractmethod
    def stat(self, part: str) -> os.stat_result: ...
    @abstractmethod
    def unlink(self, part: str) -> None: ...
    @abstractmethod
    def rmdir(self, part: str) -> None: ...
    @abstractmethod
    def replace(self, part: str, to_folder: Self, to: str) -> None: ...
    @abstractmethod
    def link(self, part: str, to_folder: Self, to: str) -> None:
        """Raises: FileExistsError; OSError where the file system has no hard links."""

    @abstractmethod
    def names(self) -> list[str]:
        """In order."""

    @abstractmethod
    def sync(self) -> None:
        """Make renames durable, where the system lets one sync a folder."""

    @abstractmethod
    def close(self) -> None: ...

    def child(self, part: str) -> Self:
        """The folder ``part`` below.

        Raises: BadName for a link; NotADirectoryError; FileNotFoundError.
        """
        if is_link(self.stat(part)):
            raise passes_link(part)
        return self._enter(part)


def is_link(found: os.stat_result) -> bool:
    """A symbolic link, or a junction of Windows."""
    attributes = getattr(found, "st_file_attributes", 0)
    return stat.S_ISLNK(found.st_mode) or bool(attributes & _REPARSE_POINT)


def passes_link(part: str) -> BadName:
    return BadName(f"{part!r} is a symbolic link; put the real file or folder there.")


class HandleDirectory(Directory):
    """By descriptor (``openat`` and its kin): whatever is swapped meanwhile, a step stays below."""

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor

    @classmethod
    def root(cls, path: Path) -> Self:
        return cls(os.open(path, os.O_RDONLY | _FOLDER_ONLY | _CLOSE_ON_EXEC))

    def same(self) -> Self:
        return self._enter(".")  # a duplicate would share the place in a listing with other threads

    def _enter(self, part: str) -> Self:
        return type(self)(self.open(part, os.O_RDONLY | _FOLDER_ONLY))

    def make(self, part: str, mode: int) -> None:
        os.mkdir(part, mode, dir_fd=self._fd)

    def open(self, part: str, flags: int, mode: int = 0o644) -> int:
        try:
            return os.open(part, flags | _NO_FOLLOW | _NO_WAIT | _CLOSE_ON_EXEC, mode, dir_fd=self._fd)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK):  # EMLINK: FreeBSD's answer to O_NOFOLLOW
                raise passes_link(part) from error
            raise

    def stat(self, part: str) -> os.stat_result:
        return os.stat(part, dir_fd=self._fd, follow_symlinks=False)

    def unlink(self, part: str) -> None:
        os.unlink(part, dir_fd=self._fd)

    def rmdir(self, part: str) -> None:
        os.rmdir(part, dir_fd=self._fd)

    def replace(self, part: str, to_folder: Self, to: str) -> None:
        os.replace(part, to, src_dir_fd=self._fd, dst_dir_fd=to_folder._fd)

    def link(self, part: str, to_folder: Self, to: str) -> None:
        os.link(part, to, src_dir_fd=self._fd, dst_dir_fd=to_folder._fd, follow_symlinks=False)

    def names(self) -> list[str]:
        return sorted(os.listdir(self._fd))  # noqa: PTH208  a handle, not a path

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class PathDirectory(Directory):
    """By path, for systems without handles of folders (Windows): each step is checked, then taken."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def root(cls, path: Path) -> Self:
        if not path.is_dir():
            raise (NotADirectoryError if path.exists() else FileNotFoundError)(str(path))
        return cls(path.resolve())

    def same(self) -> Self:
        return type(self)(self._path)

    def _enter(self, part: str) -> Self:
        if not (self._path / part).is_dir():
            raise NotADirectoryError(part)
        return type(self)(self._path / part)

    def make(self, part: str, mode: int) -> None:
        (self._path / part).mkdir(mode)

    def open(self, part: str, flags: int, mode: int = 0o644) -> int:
        path = self._path / part
        if os.path.lexists(path) and is_link(path.lstat()):
            raise passes_link(part)
        return os.open(path, flags | _BINARY | _NO_FOLLOW | _NO_WAIT, mode)

    def stat(self, part: str) -> os.stat_result:
        return (self._path / part).lstat()

    def unlink(self, part: str) -> None:
        (self._path / part).unlink()

    def rmdir(self, part: str) -> None:
        (self._path / part).rmdir()

    def replace(self, part: str, to_folder: Self, to: str) -> None:
        (self._path / part).replace(to_folder._path / to)

    def link(self, part: str, to_folder: Self, to: str) -> None:
        os.link(self._path / part, to_folder._path / to)

    def names(self) -> list[str]:
        return sorted(entry.name for entry in self._path.iterdir())

    def sync(self) -> None:
        """Windows keeps no handle of a folder that could be synced."""

    def close(self) -> None:
        """Nothing is held."""


def open_directory(path: Path) -> Directory:
    """The best kind that this system has."""
    by_handle = {os.open, os.stat, os.unlink, os.rename, os.mkdir, os.rmdir} <= os.supports_dir_fd
    return HandleDirectory.root(path) if by_handle and _NO_FOLLOW else PathDirectory.root(path)
