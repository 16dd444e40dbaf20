"""One agent for an address and folder, one for an instance's ID: a lock held for its life, and the pid file of a
background one.
"""

import contextlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from codefyui_core.errors import StartProblem
from codefyui_core.files import write_private
from codefyui_core.this_machine import boot_id, is_process, started_at


class AlreadyRunning(StartProblem):
    """Another agent holds the folder for this address."""

    default_code = "agent.running"


RUNS_ALREADY = (
    "An agent for this control plane runs already with this user-data folder. "
    "See: cdui agent status. Stop it with: cdui agent stop"
)


class FolderLock:
    """Held until ``release`` or the end of the process. On a file system without locks it holds nothing, and
    ``works`` says so.
    """

    def __init__(self, path: Path, descriptor: int, *, works: bool) -> None:
        self._path = path
        self._descriptor = descriptor
        self.works = works

    @classmethod
    def take(cls, path: Path, *, taken: str = RUNS_ALREADY) -> Self:
        """``taken``: what to say when another process has it.

        Raises: AlreadyRunning.
        """
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                works = _lock(descriptor)
            except BlockingIOError:
                os.close(descriptor)
                raise AlreadyRunning(taken) from None
            if not works or _is_at(descriptor, path):
                return cls(path, descriptor, works=works)
            os.close(descriptor)  # who held it has removed it meanwhile

    def release(self, *, remove: bool = False) -> None:
        if self._descriptor >= 0:
            if remove:
                with contextlib.suppress(OSError):
                    self._path.unlink()
            os.close(self._descriptor)
            self._descriptor = -1


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def is_held(path: Path) -> bool:
    """Does a process hold that lock now?"""
    if not path.exists():
        return False
    try:
        FolderLock.take(path).release()
    except AlreadyRunning:
        return True
    return False


def _lock(descriptor: int) -> bool:
    """False where the file system has no locks.

    Raises: BlockingIOError when somebody has it.
    """
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class PidFile:
    """What a background agent writes down of itself."""

    pid: int
    started: float
    boot_id: str
    name: str
    url: str

    @classmethod
    def read(cls, path: Path) -> "PidFile | None":
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    @classmethod
    def own(cls, *, name: str, url: str) -> "PidFile":
        pid = os.getpid()
        return cls(pid=pid, started=started_at(pid) or 0.0, boot_id=boot_id(), name=name, url=url)

    def write(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        values = {name: getattr(self, name) for name in ("pid", "started", "boot_id", "name", "url")}
        write_private(path, json.dumps(values).encode())

    @property
    def lives(self) -> bool:
        """That very process is still there, on this boot of this machine."""
        return self.boot_id == boot_id() and is_process(self.pid, self.started)


def remove_own(path: Path) -> None:
    """Delete the pid file if it is this process's."""
    found = PidFile.read(path)
    if found is not None and found.pid == os.getpid():
        with contextlib.suppress(OSError):
            path.unlink()
