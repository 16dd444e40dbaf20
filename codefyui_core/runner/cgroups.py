"""Control groups of their own for runs, where this process may make some (cgroup v2).

A group ends a whole tree in one step. With its memory controller it also tells an out-of-memory kill for certain
and knows the peak of the tree; with its CPU controller the supervisor keeps its turn however busy runs are.
Without groups the keeper does the first three by other means, and niceness the fourth.

Kernel: Documentation/admin-guide/cgroup-v2.rst. Systemd: https://systemd.io/CGROUP_DELEGATION.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from . import linux

_MEMBERSHIP = Path("/proc/self/cgroup")
_MOUNTS = Path("/proc/self/mountinfo")
_SYSTEMD = Path("/run/systemd/system")
_WANTED = ("memory", "cpu")
SUPERVISOR_WEIGHT = 1000
"""``cpu.weight`` of the supervisor's group beside that of each run, which keeps the kernel's 100."""


class NoGroups(Exception):
    """Why runs get no groups here; the text says what would help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGroup:
    """One made group."""

    path: Path

    @classmethod
    def make(cls, name: str, parent: Path | None) -> "RunGroup | None":
        """Below ``parent``; None when it can't be made any more."""
        if parent is None:
            return None
        path = parent / name
        try:
            path.mkdir()
        except OSError:
            return None
        return cls(path=path)

    def enter(self) -> None:
        """Move the calling process in; what it starts stays in."""
        (self.path / "cgroup.procs").write_text("0", encoding="ascii")

    @property
    def memory_events(self) -> Path | None:
        """None without the memory controller."""
        file = self.path / "memory.events"
        return file if file.exists() else None

    def peak_bytes(self) -> int | None:
        """None before Linux 5.19, or without the memory controller."""
        with suppress(OSError, ValueError):
            return int((self.path / "memory.peak").read_text(encoding="ascii"))
        return None

    def end(self) -> None:
        """SIGKILL to all that is in it (Linux 5.14 and newer)."""
        with suppress(OSError):
            (self.path / "cgroup.kill").write_text("1", encoding="ascii")

    def remove(self) -> None:
        with suppress(OSError):
            self.path.rmdir()


def group_name(supervisor: str, run_id: str, launch: int) -> str:
    """Of a run's group; ``supervisor`` as in ``linux.identity_of``, ``launch`` counted there."""
    return f"cdui-run-{supervisor}-{launch}-{run_id}"


def prepare() -> Path:
    """The group below which runs get theirs. Moves this process one group down where the kernel asks for it:
    a group with controllers for its children may hold no processes itself.

    Raises: NoGroups.
    """
    path = own_group()
    if path is None:
        raise NoGroups("this machine has no cgroup v2 hierarchy")
    if not (path / "cgroup.kill").exists() and not _is_root(path):
        raise NoGroups("this kernel can't end control groups; that takes Linux 5.14")
    if not may_use(path):
        raise NoGroups(
            f"{path} isn't this process's to divide; in a systemd unit set Delegate=yes, and in a container mount"
            " /sys/fs/cgroup writable"
        )
    _share_out(path)
    return path


def may_use(path: Path, systemd: Path = _SYSTEMD) -> bool:
    """Writable, and not managed by systemd for somebody else: it marks what it delegates."""
    if not all(os.access(path / name, os.W_OK) for name in ("", "cgroup.procs")):
        return False
    return not systemd.is_dir() or any(_marked(path, name) for name in ("user.delegate", "trusted.delegate"))


def _marked(path: Path, name: str) -> bool:
    if hasattr(os, "getxattr"):
        with suppress(OSError):
            return os.getxattr(path, name) == b"1"
    return False


def _is_root(path: Path) -> bool:
    """The hierarchy's root has neither ``cgroup.kill`` nor ``cgroup.type``, and may hold processes."""
    return not (path / "cgroup.type").exists()


def _share_out(path: Path) -> None:
    """Controllers for the runs' groups, as far as they can be had: each alone, as each may be missing."""
    with suppress(OSError):
        offered = _words(path / "cgroup.controllers")
        wanted = [name for name in _WANTED if name in offered - _words(path / "cgroup.subtree_control")]
        if wanted and not _is_root(path):
            _step_down(path)
        for name in wanted:
            with suppress(OSError):
                (path / "cgroup.subtree_control").write_text(f"+{name}", encoding="ascii")
        own = own_group()
        if own is not None and own != path:
            with suppress(OSError):
                (own / "cpu.weight").write_text(str(SUPERVISOR_WEIGHT), encoding="ascii")


def _step_down(path: Path) -> None:
    """Only when all that is in the group is this process's: nobody else's process is moved.

    Raises: OSError.
    """
    members = {int(pid) for pid in (path / "cgroup.procs").read_text(encoding="ascii").split()}
    if os.getpid() not in members or not all(_is_ours(pid) for pid in members):
        return
    leaf = path / "cdui-supervisor"
    leaf.mkdir(exist_ok=True)
    for pid in members:
        (leaf / "cgroup.procs").write_text(str(pid), encoding="ascii")


def _is_ours(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = linux.parent_of(pid) or 0
    return False


def _words(file: Path) -> set[str]:
    return set(file.read_text(encoding="ascii").split())


def left_groups(parent: Path) -> list[RunGroup]:
    """Groups of runs whose supervisor is gone."""
    found = []
    for path in parent.glob("cdui-run-*"):
        supervisor = path.name.split("-")[2]
        if not linux.is_identity(supervisor):
            found.append(RunGroup(path=path))
    return found


def own_group(membership: Path = _MEMBERSHIP, mounts: Path = _MOUNTS) -> Path | None:
    """The folder of this process's own group in the unified hierarchy; None without one."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
        mounted = mounts.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    inside = next((line[3:] for line in lines if line.startswith("0::")), None)
    root = next((line.split()[4] for line in mounted if " - cgroup2 " in line), None)
    if inside is None or root is None:
        return None
    path = Path(root) / inside.lstrip("/")
    return path if path.is_dir() else None


def old_memory_group(membership: Path = _MEMBERSHIP, mounts: Path = _MOUNTS) -> Path | None:
    """The folder of this process's group in the memory hierarchy of cgroup v1; None without one."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
        mounted = mounts.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    split = (line.split(":", 2) for line in lines)
    inside = next((path for _, controllers, path in split if "memory" in controllers.split(",")), None)
    root = next((line.split()[4] for line in mounted if _is_old_memory(line)), None)
    if inside is None or root is None:
        return None
    path = Path(root) / inside.lstrip("/")
    return path if path.is_dir() else None


def _is_old_memory(mount: str) -> bool:
    _, _, kind = mount.partition(" - ")
    words = kind.split()
    return len(words) > 2 and words[0] == "cgroup" and "memory" in words[2].split(",")
