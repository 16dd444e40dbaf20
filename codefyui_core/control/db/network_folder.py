"""SQLite on a network file system: its locks and its shared memory can't be relied on there, and two machines that
open one file damage it (https://www.sqlite.org/faq.html#q5, https://www.sqlite.org/wal.html).
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

from codefyui_core.errors import StartProblem

NETWORK = frozenset(
    {
        "afpfs",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "davfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "orangefs",
        "panfs",
        "smb3",
        "smbfs",
        "sshfs",
        "webdav",
    }
)
"""Types of file systems that other machines may write to at the same time."""


class Mount(NamedTuple):
    """A folder that a file system begins at."""

    folder: str
    file_system: str
    options: str = ""


def check(file: Path) -> None:
    """Raises: StartProblem when the file lies on a network file system."""
    found = network_of(file.resolve(), _mounts())
    if found is None:
        return
    raise StartProblem(
        f"The database {file} lies on a network file system ({found}), where SQLite may lose or damage it. Set "
        "CODEFYUI_DB_PATH to a file on a disk of this machine, or CODEFYUI_DATABASE_URL to a PostgreSQL database. "
        "CODEFYUI_DB_ON_NETWORK=1 starts all the same: then no other machine may open this file."
    )


def network_of(file: Path, mounts: Iterable[Mount]) -> str | None:
    """The type of the network file system that the file is on; None: it is on none. Pure."""
    holding = [mount for mount in mounts if file.is_relative_to(mount.folder)]
    # Of two mounts on one folder, the later one is seen.
    nearest = max(reversed(holding), key=lambda mount: len(Path(mount.folder).parts), default=None)
    if nearest is None:
        return None
    name = nearest.file_system.lower().removeprefix("fuse.")
    if name in NETWORK:
        return nearest.file_system
    return "a network drive" if "remote" in nearest.options.split(",") else None


def _mounts() -> list[Mount]:
    """None where the system doesn't say."""
    try:
        found = psutil.disk_partitions(all=True)
    except (OSError, psutil.Error):
        return []
    # ``remote`` is psutil's word for Windows drives alone; elsewhere it would be an option of the file system.
    return [Mount(one.mountpoint, one.fstype, one.opts if os.name == "nt" else "") for one in found]
