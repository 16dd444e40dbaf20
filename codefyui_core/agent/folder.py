"""The folder of one attempt's spool: who owns it, whose it is, and how its process ended."""

import json
import os
import shutil
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from codefyui_core.files import write_private
from codefyui_core.plugin.values import Model
from codefyui_core.this_machine import boot_id, is_process, started_at
from codefyui_core.wire.messages import AttemptKey, EndItem

M = TypeVar("M", bound=BaseModel)

HEAD = "head.json"
OWNER = "owner"
RELEASED = "released"
OUTCOME = "outcome.json"
JOURNAL = "files.log"
"""What is known of the attempt's files."""


class Head(Model):
    """What is known of an attempt from the disk alone. Never the graph, a secret or a ticket."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: int = 1
    db_id: str
    worker_id: str
    run_id: str
    attempt: int
    lease: str
    devices: tuple[str, ...] = ()
    grace_s: float = 300.0
    backend: str | None = None

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(run_id=self.run_id, attempt=self.attempt)


class Owner(Model):
    """The process that writes the folder."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    incarnation: str
    host: str
    boot_id: str
    pid: int
    started: float

    @classmethod
    def this_process(cls, incarnation: str) -> "Owner":
        pid = os.getpid()
        return cls(
            incarnation=incarnation,
            host=socket.gethostname(),
            boot_id=boot_id(),
            pid=pid,
            started=started_at(pid) or 0.0,
        )

    @property
    def gone(self) -> bool:
        """It is certain that it writes no more. A process on another host may still do."""
        if self.host != socket.gethostname():
            return False
        return self.boot_id != boot_id() or not is_process(self.pid, self.started) or self.pid == os.getpid()


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A folder that a process of before left behind."""

    path: Path
    head: Head
    end: EndItem | None
    """How its process ended, if that was written down before ``exited``."""


def make(root: Path, head: Head, owner: Owner) -> Path:
    """A new attempt's folder: made under another name and renamed, so that it is whole or not there. Blocking.

    Raises: OSError.
    """
    final = root / f"{head.run_id}.{head.attempt}"
    making = root / f".{final.name}.making"
    shutil.rmtree(making, ignore_errors=True)
    try:
        making.mkdir(mode=0o700, parents=True)
        _write(making / HEAD, head)
        _write(making / OWNER, owner)
        making.rename(final)
    except OSError:
        shutil.rmtree(making, ignore_errors=True)
        raise
    _sync_folder(root)
    return final


def take_over(root: Path, owner: Owner, *, heir: bool = False) -> tuple[list[Left], list[Path]]:
    """What is left of processes before: ours now, and what may not be touched. ``heir``: a lock that works proves
    that who wrote there is dead, wherever it ran. Blocking.
    """
    taken: list[Left] = []
    strange: list[Path] = []
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        if not path.is_dir():
            continue
        head, before = _read(path / HEAD, Head), _read(path / OWNER, Owner)
        if path.name.startswith("."):  # half made, or half removed
            if heir or before is None or before.gone:
                shutil.rmtree(path, ignore_errors=True)
            continue
        released = (path / RELEASED).exists()
        if head is None or not (heir or released or before is None or before.gone):
            strange.append(path)
            continue
        with suppress(FileNotFoundError):  # another agent was faster
            mine = _claimed(path, owner) if released else path
            _write(mine / OWNER, owner)
            (mine / RELEASED).unlink(missing_ok=True)
            taken.append(Left(path=mine, head=head, end=_read(mine / OUTCOME, EndItem)))
    return taken, strange


def _claimed(path: Path, owner: Owner) -> Path:
    """Who renames a released folder has it, also where there are no locks.

    Raises: FileNotFoundError.
    """
    mine = path.with_name(f"{path.name.partition('~')[0]}~{owner.incarnation[:8]}")
    return path.rename(mine)


def release(path: Path) -> None:
    """Nothing is written there any more, and it wasn't delivered: any agent of the folder may do that. Blocking."""
    write_private(path / RELEASED, b"")


def read_owner(path: Path) -> Owner | None:
    """Blocking."""
    return read_owner_file(path / OWNER)


def write_owner(path: Path, owner: Owner) -> None:
    """Blocking."""
    write_owner_file(path / OWNER, owner)


def read_owner_file(path: Path) -> Owner | None:
    """Blocking."""
    return _read(path, Owner)


def write_owner_file(path: Path, owner: Owner) -> None:
    """Blocking."""
    _write(path, owner)


def write_outcome(path: Path, end: EndItem) -> None:
    """Before ``exited``: what the end is to say, for a process that comes after this one. Blocking."""
    _write(path / OUTCOME, end)


def is_publishing(root: Path) -> bool:
    """Does an attempt there deliver files, its processes gone? Blocking."""
    return any((path / OUTCOME).exists() and (path / JOURNAL).exists() for path in root.glob("*.*"))


def remove(path: Path) -> None:
    """Blocking; in one step out of sight."""
    gone = path.with_name(f".{path.name}.gone")
    shutil.rmtree(gone, ignore_errors=True)
    with suppress(FileNotFoundError):
        path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _read(path: Path, model: type[M]) -> M | None:
    try:
        return model.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def _write(path: Path, model: BaseModel) -> None:
    write_private(path, json.dumps(model.model_dump(mode="json")).encode())


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
