"""A run as a plain child process, for systems without keepers: macOS, Windows, old kernels.

``python -m codefyui_core.runner.plain``: control comes over standard input, events leave over standard output,
and what user code prints goes to standard error. Its process group (or, on Windows, its children as psutil sees
them) is ended with it; orphans that made a session of their own are beyond reach there.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from .handle import RunHandle, Streams, process_lost
from .process import Pipe, leave, run
from .requests import KeeperRequest, TreeEnd

if TYPE_CHECKING:
    from .warm import Interpreter

LIMIT_BYTES = 128 << 10


class PlainTree:
    """One child process, with the group that it leads where there are groups."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if os.name == "posix":
                os.killpg(self.pid, signal.SIGKILL)
            else:
                _kill_descendants(self.pid)
                self._process.kill()

    async def gone(self) -> TreeEnd:
        code = await self._process.wait()
        self.kill()
        return TreeEnd(exit_code=code) if code >= 0 else TreeEnd(signal=-code)


def _kill_descendants(pid: int) -> None:
    try:
        import psutil
    except ImportError:
        return
    with suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):
                child.kill()


async def launch_plain(
    interpreter: "Interpreter",
    request: KeeperRequest,
    env: Mapping[str, str],
    writes_for_s: float | None = None,
) -> RunHandle:
    """Raises: CodefyError ``run.process_lost``."""
    process = await asyncio.create_subprocess_exec(
        interpreter.python,
        "-m",
        "codefyui_core.runner.plain",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=LIMIT_BYTES,
        env={**interpreter.environ, **env},
        start_new_session=os.name == "posix",
    )
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise process_lost("it has no pipes")
    process.stdin.write(request.to_line())
    streams = Streams(control=process.stdin, events=process.stdout, stderr=process.stderr)
    return RunHandle(PlainTree(process), streams, writes_for_s)


def main() -> None:
    control, events = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    pipe, lines = Pipe(events), os.fdopen(control, "rb")
    status = 1
    try:
        status = run(KeeperRequest.from_line(lines.readline()), lines, pipe)
    except Exception:
        sys.excepthook(*sys.exc_info())
    finally:
        leave(status)


if __name__ == "__main__":
    main()
