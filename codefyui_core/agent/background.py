"""A background agent: a process of its own session that logs to a file and says when it is connected."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codefyui_core.errors import LinkProblem
from codefyui_core.settings import Install

from .lock import PidFile
from .places import Places
from .plan import AgentPlan

WAIT_S = 90.0
TAIL_LINES = 5
ERROR_MARK = " ERROR "
"""As the log's lines have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What became of it within the wait."""

    name: str = ""
    exit_code: int | None = None
    """It ended."""
    connected: bool = False


def log_file(install: Install, key: str) -> Path:
    return install.logs / f"agent-{key}.log"


def start(plan: AgentPlan, install: Install, *, wait_s: float = WAIT_S) -> Started:
    """Blocking, until it is connected, has ended, or the wait is over.

    Raises: LinkProblem with its last words and its exit status when it ended.
    """
    path = log_file(install, plan.key)
    path.parent.mkdir(parents=True, exist_ok=True)
    begin = path.stat().st_size if path.exists() else 0
    reader, writer = os.pipe()
    with path.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "codefyui_core.agent", "--ready-fd", str(writer)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=(writer,),
            start_new_session=True,
            close_fds=True,
        )
    os.close(writer)
    assert process.stdin is not None
    with process.stdin as stdin:
        stdin.write(plan.model_copy(update={"background": True}).model_dump_json().encode())
    said = _wait(reader, process, wait_s)
    if said.exit_code is not None:
        words = _last_words(path, begin) or f"The agent ended. Its log: {path}"
        raise LinkProblem(words, code="agent", exit_code=said.exit_code)
    process.returncode = 0  # it outlives this process on purpose; its destructor would complain
    return said


def _wait(reader: int, process: "subprocess.Popen[bytes]", wait_s: float) -> Started:
    import select

    deadline = time.monotonic() + wait_s
    data = b""
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([pipe], [], [], left)
            piece = pipe.read(4096) if ready else b""
            data += piece or b""
            if b"\n" in data:
                said: dict[str, Any] = json.loads(data.partition(b"\n")[0])
                return Started(name=str(said["name"]), connected=True)
            if ready and not piece:
                return Started(exit_code=process.wait())
    return Started()


def _last_words(path: Path, begin: int) -> str:
    """Its last error, without the time; else the last lines that it wrote since it was started."""
    with path.open("rb") as log:
        log.seek(begin)
        text = log.read().decode(errors="replace").strip()
    _, error, words = text.rpartition(ERROR_MARK)
    return words if error else "\n".join(text.splitlines()[-TAIL_LINES:])


def saying_ready(descriptor: int | None) -> Callable[[str], None]:
    """In the background process: tell the parent once that the worker of that name is connected."""
    open_ = [descriptor]

    def connected(name: str) -> None:
        if open_[0] is not None:
            os.write(open_[0], json.dumps({"name": name}).encode() + b"\n")
            os.close(open_[0])
            open_[0] = None

    return connected


def write_pid(places: Places, *, name: str, url: str) -> None:
    PidFile.own(name=name, url=url).write(places.pid)
