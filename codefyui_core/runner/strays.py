"""Ends what is left of runs that lost their keeper: its orphans have become children of the supervisor, or, when
that was killed too, of nobody we know.

The supervisor has other children (ssh tunnels, helpers), and adopts their orphans too. A process is taken for a
run's only when it was started with a supervisor's mark in its environment and isn't a zygote or a keeper.
"""

import asyncio
import os
import secrets
import signal
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Protocol

from . import linux

MARK = "CODEFYUI_RUN_TREE"
_DEADLINE_S = 10.0
_LOOKS = 2
"""Times in a row that nothing may be found, as a process may fork while we look."""


def mark(pid: int) -> str:
    """The value of ``MARK`` for what the supervisor ``pid`` starts: which process that is, and a random part."""
    return f"{linux.identity_of(pid)}.{secrets.token_hex(8)}"


def end_abandoned() -> int:
    """SIGKILL to all that bears the mark of a supervisor that is gone. How many.

    Nobody's but a dead supervisor's: the mark names the process with its start time, and is believed only where
    process numbers mean what they mean here.
    """
    ended = 0
    for pid in linux.all_processes():
        supervisor, _, _ = linux.started_with(pid, MARK).rpartition(".")
        if "." in supervisor and _is_abandoned(pid, supervisor):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                ended += 1
    return ended


def _is_abandoned(pid: int, supervisor: str) -> bool:
    return pid != os.getpid() and linux.same_numbers(pid) and not linux.is_identity(supervisor)


class Ours(Protocol):
    """The children of this process that aren't strays, although they bear the mark."""

    def pids(self) -> Collection[int]: ...
    def sessions(self) -> Collection[int]:
        """Sessions of zygotes: keepers that were just forked are in them, runs never."""
        ...


class Strays:
    """For one supervisor."""

    def __init__(self, mark: str, ours: Ours) -> None:
        self._mark = mark
        self._ours = ours

    async def end(self, run: int) -> None:
        """Every marked orphan, and the run itself, which dies with its keeper but is ours to reap."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _DEADLINE_S
        pending, empty = {run}, 0
        while empty < _LOOKS and loop.time() < deadline:
            for pid in pending:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            pending = {pid for pid in pending if not _reaped(pid)} | set(self._found())
            empty = 0 if pending else empty + 1
            await asyncio.sleep(0.002)

    def _found(self) -> Iterator[int]:
        known, sessions = self._ours.pids(), self._ours.sessions()
        for pid in linux.scanned_children(os.getpid()):
            if (
                pid not in known
                and linux.started_with(pid, MARK) == self._mark
                and linux.session_of(pid) not in sessions
            ):
                yield pid


def _reaped(pid: int) -> bool:
    """Also when it isn't our child at all (any more)."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True
