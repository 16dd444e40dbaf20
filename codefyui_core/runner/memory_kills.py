"""Whether the kernel's out-of-memory killer ended a process: from the counter that is nearest to the run.

The run's own control group counts for that run alone. Elsewhere the counter is this process's group's, or the whole
machine's; then only what it counted in the last seconds before the end is held against the end.
"""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from . import cgroups

WINDOW_S = 5.0
"""A shared counter is read so often, and compared with the reading before the last one."""
_VMSTAT = Path("/proc/vmstat")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """A file of ``name value`` lines, one of which is ``oom_kill``."""

    file: Path
    shared: bool
    """Others' processes count, too."""

    def read(self) -> int:
        """Kills so far; 0 when it can't be told."""
        with suppress(OSError, ValueError):
            for line in self.file.read_text(encoding="ascii").splitlines():
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
        return 0


def counter(own: Path | None) -> Counter:
    """``own``: ``memory.events`` of the run's group, if it has one. Else the group that this process is in
    (cgroup v2, then v1), else the machine (Linux 4.13 and newer).
    """
    if own is not None:
        return Counter(file=own, shared=False)
    group, old = cgroups.own_group(), cgroups.old_memory_group()
    for file in (
        None if group is None else group / "memory.events",
        None if old is None else old / "memory.oom_control",
    ):
        if file is not None and file.exists():
            return Counter(file=file, shared=True)
    return Counter(file=_VMSTAT, shared=True)


@dataclass(slots=True, kw_only=True)
class Kills:
    """Follows one counter while a run lives."""

    counter: Counter
    _before: int
    _last: int
    _at: float

    @classmethod
    def follow(cls, counter: Counter) -> "Kills":
        now = counter.read()
        return cls(counter=counter, _before=now, _last=now, _at=time.monotonic())

    def look(self) -> None:
        """Call it every few seconds."""
        now = time.monotonic()
        if self.counter.shared and now - self._at >= WINDOW_S:
            self._before, self._last, self._at = self._last, self.counter.read(), now

    def count(self) -> int:
        return self.counter.read() - self._before
