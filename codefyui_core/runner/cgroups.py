"""A control group of its own for a run, where this process may make one (cgroup v2, delegated).

It tells an out-of-memory kill for certain, knows the peak of the whole tree, and ends it in one step. Without
one the keeper does all three by other means.
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_MEMBERSHIP = Path("/proc/self/cgroup")
_MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGroup:
    """One made group."""

    path: Path

    @classmethod
    def make(cls, name: str, parent: Path | None) -> "RunGroup | None":
        """Below ``parent`` when memory is counted for its children and it may be written; None otherwise."""
        if parent is None:
            return None
        path = parent / name
        try:
            if "memory" not in (parent / "cgroup.subtree_control").read_text(encoding="ascii").split():
                return None
            path.mkdir()
        except OSError:
            return None
        return cls(path=path)

    def enter(self) -> None:
        """Move the calling process in; what it starts stays in."""
        (self.path / "cgroup.procs").write_text("0", encoding="ascii")

    def kills(self) -> int:
        """Processes in it that were ended for memory."""
        return _field(self.path / "memory.events", "oom_kill")

    def peak_bytes(self) -> int | None:
        """None before Linux 5.19."""
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


def _field(file: Path, name: str) -> int:
    with suppress(OSError, ValueError):
        for line in file.read_text(encoding="ascii").splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0
