"""Processes of a schedule: started, told apart from everybody else's, and all found again at the end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

MARK = "CDUI_FAULTS_SITE"
"""In the environment of every process that a schedule started, and so of its descendants."""
PLACE = "CDUI_FAULTS_PLACE"
"""The machine that they belong to, beside it."""
START_S = 20.0
"""The longest that a start may take before it gives up."""
RUN, KEEPER, ZYGOTE = "cdui-run", "cdui-keeper", "cdui-zygote"


class NotInTime(Exception):
    """A condition wasn't met within its time."""


def wait_for(met: Callable[[], Any], within_s: float, what: str, *, every_s: float = 0.2) -> Any:
    """Ask until the answer is true; the answer.

    Raises: NotInTime.
    """
    deadline = time.monotonic() + within_s
    while not (answer := met()):
        if time.monotonic() > deadline:
            raise NotInTime(f"not within {within_s:g} s: {what}")
        time.sleep(every_s)
    return answer


@dataclass
class Process:
    """One server or agent, and the file with all that it said."""

    popen: "subprocess.Popen[bytes]"
    log: Path
    expected: bool = False
    """Its end is ours."""
    paused: bool = False
    started: float = field(default_factory=time.monotonic)
    starved: bool = False
    """What it needs was missing once in its life."""

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    @property
    def up(self) -> bool:
        """Something can be done to it."""
        return self.alive and not self.paused and not self.expected

    @property
    def gave_up(self) -> bool:
        """It may end by itself: it lacked what it needs while it started."""
        return self.starved and time.monotonic() - self.started < START_S

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self.popen.send_signal(number)

    def kill(self) -> None:
        self.expected = True
        self.send(signal.SIGKILL)
        self.popen.wait(30)

    def pause(self) -> None:
        self.paused = True
        self.send(signal.SIGSTOP)

    def wake(self) -> None:
        self.paused = False
        self.send(signal.SIGCONT)

    def below(self, name: str) -> list[psutil.Process]:
        """Its descendants of that name."""
        with suppress(psutil.Error):
            return [p for p in psutil.Process(self.popen.pid).children(recursive=True) if _name(p) == name]
        return []


def spawn(words: Sequence[str], *, log: Path, environ: Mapping[str, str], cwd: Path) -> Process:
    """A Python process in a session of its own."""
    with log.open("ab") as out:
        popen = subprocess.Popen(
            [sys.executable, *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=dict(environ),
            cwd=cwd,
            start_new_session=True,
        )
    return Process(popen=popen, log=log)


def marked(site: str, names: Sequence[str] = (), *, place: str | None = None) -> list[psutil.Process]:
    """Processes of that site, of these names and that machine if any. Those that have ended and wait for us
    don't count.
    """
    wanted = {MARK: site} | ({PLACE: place} if place else {})
    return [
        process
        for process in psutil.process_iter()
        if process.pid != os.getpid() and (not names or _name(process) in names) and _has(process, wanted)
    ]


def place_of(process: psutil.Process) -> str:
    """The machine that it belongs to; empty when it has ended."""
    with suppress(psutil.Error, OSError):
        return process.environ().get(PLACE, "")
    return ""


def shown(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f"{process.pid} {process.name()} {' '.join(process.cmdline())[:120]}"
    return f"{process.pid} (gone meanwhile)"


def _has(process: psutil.Process, wanted: Mapping[str, str]) -> bool:
    with suppress(psutil.Error, OSError):
        return process.status() != psutil.STATUS_ZOMBIE and wanted.items() <= process.environ().items()
    return False


def _name(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return process.name()
    return ""
