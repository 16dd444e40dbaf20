"""The few calls by which spools touch the disk, in one place so that a test can lose power."""

import os
from contextlib import suppress
from pathlib import Path


class Disk:
    """The real one. No shared memory, no locks, no mmap: the folder may be on NFS."""

    def open(self, path: Path) -> int:
        """For appending; made with mode 0600."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o600)

    def write(self, descriptor: int, data: bytes) -> None:
        """All of it, or OSError with nothing of it left behind."""
        before = os.fstat(descriptor).st_size
        try:
            self._write(descriptor, data)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, before)
            raise

    def _write(self, descriptor: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def sync_folder(self, folder: Path) -> None:
        if os.name == "nt":
            return
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def cut(self, path: Path, size: int) -> None:
        """Drop what lies beyond ``size``, durably."""
        descriptor = os.open(path, os.O_WRONLY | getattr(os, "O_BINARY", 0))
        try:
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)
