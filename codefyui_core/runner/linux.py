"""What Linux offers for keeping process trees: subreapers, parent-death signals, who is whose child.

Importable everywhere; ``keeps_trees`` says whether the functions may be called.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PROC = Path("/proc")


def keeps_trees() -> bool:
    """Linux with pidfds (5.3 and newer) and a mounted /proc."""
    if not sys.platform.startswith("linux") or not hasattr(os, "pidfd_open"):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return (_PROC / "self" / "stat").exists()


def become_subreaper() -> None:
    """Orphans among the descendants become children of this process instead of init's (prctl(2))."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """SIGKILL for this process when the *thread* that forked it ends; call it first, then compare
    ``getppid`` with the expected parent.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def set_name(name: str) -> None:
    """What ``ps`` and ``top`` show; at most 15 bytes."""
    buffer = ctypes.create_string_buffer(name.encode()[:15])
    _prctl(_PR_SET_NAME, ctypes.addressof(buffer))


def _prctl(option: int, argument: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def children(pid: int) -> list[int]:
    """Direct children of all threads of ``pid``, zombies too. While some of them end, the kernel's list may
    miss others (proc(5)): ask again.
    """
    try:
        return [child for task in _tasks(pid) for child in _listed(task / "children")]
    except FileNotFoundError:
        return scanned_children(pid)


def scanned_children(pid: int) -> list[int]:
    """The same from all of /proc: slower, and complete."""
    return [other for other in _all() if parent_of(other) == pid]


def _tasks(pid: int) -> list[Path]:
    return list((_PROC / str(pid) / "task").iterdir())


def _listed(file: Path) -> list[int]:
    try:
        return [int(word) for word in file.read_text(encoding="ascii").split()]
    except ProcessLookupError:
        return []


def _all() -> Iterator[int]:
    return (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal())


def _stat(pid: int) -> list[str]:
    """The fields of /proc/pid/stat after the command's name, which may hold anything: state is the first."""
    with suppress(OSError):
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()
    return []


def parent_of(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def session_of(pid: int) -> int | None:
    """Also of a zombie."""
    fields = _stat(pid)
    return int(fields[3]) if fields else None


def started_with(pid: int, name: str) -> str:
    """The value of a variable in the environment that the process (or what it was forked from) was started
    with; empty without one, or when it may not be read.
    """
    prefix = f"{name}=".encode()
    with suppress(OSError):
        for entry in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
            if entry.startswith(prefix):
                return entry.removeprefix(prefix).decode("utf-8", errors="replace")
    return ""


def thread_count() -> int:
    """Of this process, threads that Python doesn't know included."""
    return len(list((_PROC / "self" / "task").iterdir()))


def identity_of(pid: int) -> str:
    """``pid.start``, the start in ticks since boot: a number alone may be somebody else's later. Empty when
    there is no such process.
    """
    fields = _stat(pid)
    return f"{pid}.{fields[19]}" if fields else ""


def is_identity(text: str) -> bool:
    """That very process is still there, and no zombie."""
    pid, _, _ = text.partition(".")
    if not pid.isdecimal() or identity_of(int(pid)) != text:
        return False
    return _stat(int(pid))[:1] not in ([], ["Z"], ["X"])


def same_numbers(pid: int) -> bool:
    """Process ids and times mean the same there as here: no other container's, and readable by us."""
    try:
        return all(
            (_PROC / str(pid) / "ns" / name).readlink() == (_PROC / "self" / "ns" / name).readlink()
            for name in ("pid", "time")
        )
    except OSError:
        return False


def all_processes() -> list[int]:
    """Of the machine, or of this container."""
    return list(_all())


NICER = 2
"""How much nicer a run is than its supervisor: enough that heartbeats go first, little enough that a run beside other
people's work on the same machine hardly notices.
"""


def yield_to_supervisor() -> None:
    """Lower this process's priority below that of the one that supervises it (nice(2))."""
    with suppress(OSError):
        os.nice(NICER)


def offer_for_oom() -> None:
    """Let the kernel choose this process before the one that supervises it, when memory runs out."""
    with suppress(OSError):
        (_PROC / "self" / "oom_score_adj").write_text("500", encoding="ascii")
