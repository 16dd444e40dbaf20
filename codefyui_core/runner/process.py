"""The process of one run: waits for ``go``, executes it, writes what happens to its pipe, and ends."""

import atexit
import importlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, BinaryIO, NoReturn, TextIO

from .api import Finished, Go
from .requests import READY, THREAD_VARIABLES, WRITTEN, KeeperRequest

Emit = Callable[[bytes], None]
"""Writes one JSON line without its end; blocks while the reader holds the run."""


class Pipe:
    """The event pipe; safe from any thread."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._lock = threading.Lock()

    def emit(self, line: bytes) -> None:
        view = memoryview(line + b"\n")
        with self._lock:
            while view:
                view = view[os.write(self._number, view) :]

    def outcome(self, outcome: str, error: str | None = None, cause: str | None = None) -> None:
        payload = {"outcome": outcome, "error": error, "cause": cause}
        document = {
            "kind": "outcome",
            "type": None,
            "payload": payload,
            "ts": time.time_ns() // 1_000_000,
        }
        self.emit(json.dumps(document, separators=(",", ":")).encode())


def main(request: KeeperRequest, *, control: int, events: int) -> NoReturn:
    """Never returns: below us on the stack is the zygote or the keeper."""
    status = 1
    try:
        status = run(request, os.fdopen(control, "rb"), Pipe(events))
    except BaseException:
        traceback.print_exc()
    finally:
        leave(status)


def run(request: KeeperRequest, control: BinaryIO, pipe: Pipe) -> int:
    """``control`` has a JSON object a line: ``go``, perhaps ``stop``. The answer is the exit status."""
    settle(request)
    pipe.emit(READY)
    go = _go(control)
    if go is None:
        pipe.outcome("stopped")
        return 0
    stop = threading.Event()
    threading.Thread(target=_listen, args=(control, stop), name="control", daemon=True).start()
    name, _, function = request.entry.partition(":")
    execute = getattr(importlib.import_module(name), function)
    answer = execute(go, request, pipe.emit, stop.is_set)
    outcome: Mapping[str, Any] = answer.outcome if isinstance(answer, Finished) else answer
    pipe.outcome(outcome["outcome"], outcome.get("error"), outcome.get("cause"))
    if isinstance(answer, Finished):
        _finish(answer, pipe)
    return 1 if outcome["outcome"] == "failed" else 0


def _finish(finished: Finished, pipe: Pipe) -> None:
    """The outcome stands, whatever happens here."""
    try:
        finished.afterwards()
    except Exception:
        traceback.print_exc()
    finally:
        pipe.emit(WRITTEN)


def _go(control: BinaryIO) -> Go | None:
    """None when it was stopped first, or there is nobody who could say go."""
    line = control.readline()
    if not line:
        return None
    message = json.loads(line)
    return Go.model_validate(message["go"]) if "go" in message else None


def _listen(control: BinaryIO, stop: threading.Event) -> None:
    """The only other word is stop, and the end of the connection means it, too."""
    control.readline()
    stop.set()


def settle(request: KeeperRequest) -> None:
    """Folder, environment and threads, before anything can have looked at them."""
    os.chdir(request.work_dir)
    for name in THREAD_VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(
        {name: value for name, value in request.origin.items() if name in THREAD_VARIABLES} | request.env
    )
    if request.cores is not None:
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(request.cores)))
    sys.stdout, sys.stderr = _text(1), _text(2)
    wake_libraries(request.cores)


def _text(number: int) -> TextIO:
    """A line at a time, and never an error for what can't be encoded."""
    return open(number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def wake_libraries(cores: int | None) -> None:
    """What a zygote kept small or shared, set right for this run: thread pools and random generators.

    Libraries that aren't imported yet read the environment themselves.
    """
    threads = cores or _cores()
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
        torch.default_generator.seed()
    if numpy is not None:
        numpy.random.seed()
        with suppress(ImportError):
            threadpoolctl = importlib.import_module("threadpoolctl")
            threadpoolctl.threadpool_limits(threads)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def leave(status: int) -> NoReturn:
    """End as an interpreter does, but never back through the stack of the process that was forked."""
    with suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):
            stream.flush()
    os._exit(status)
