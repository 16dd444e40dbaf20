"""The server's process as commands see it: start it in the background, ask it to go, make sure that it is gone."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from ..errors import CodefyError
from .client import HttpApi, Running, Server
from .errors import CommandProblem

HEALTHY_WITHIN_S = 30.0
KILL_AFTER_S = 2.0
LOG_TAIL_LINES = 15


class ServerDidNotStart(CommandProblem):
    """The process ended, or doesn't answer."""

    default_code = "start"


def start_background(
    arguments: Sequence[str], *, log_file: Path, environ: Mapping[str, str], user_data: Path
) -> Running:
    """A detached server process; returns once it answers.

    Raises: ServerDidNotStart with the end of its log.
    """
    log_file.parent.mkdir(parents=True, exist_ok=True)
    offset = log_file.stat().st_size if log_file.exists() else 0
    with log_file.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "codefyui_core.control", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=dict(environ),
            start_new_session=True,
        )
    deadline = time.monotonic() + HEALTHY_WITHIN_S
    while time.monotonic() < deadline:
        running = Running.read(user_data)
        if running is not None and running.pid == process.pid and healthy(running):
            return running
        if process.poll() is not None:
            raise ServerDidNotStart(f"The server didn't start:\n{_tail(log_file, offset)}")
        time.sleep(0.05)
    raise ServerDidNotStart(
        f"The server doesn't answer after {HEALTHY_WITHIN_S:.0f} s. Its log is {log_file}:\n{_tail(log_file, offset)}"
    )


def healthy(running: Running) -> bool:
    """It answers, and is the one that server.json names."""
    try:
        answer = HttpApi(Server(url=running.url, token=""), timeout_s=2).call("GET", "/api/health")
    except CodefyError:
        return False
    return isinstance(answer, dict) and answer.get("boot_id") == running.boot_id


def live_server(user_data: Path) -> Running | None:
    """The server of this user data, if its process is there and really is one."""
    running = Running.read(user_data)
    return running if running is not None and process_of(running) is not None else None


def process_of(running: Running) -> psutil.Process | None:
    """None when the number belongs to somebody else by now."""
    try:
        process = psutil.Process(running.pid)
        words = process.cmdline()
        alive = process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return None
    return process if alive and any("codefyui_core.control" in word for word in words) else None


def stop_server(running: Running, *, keep_runs: bool, token: str | None) -> bool:
    """Ask over HTTP, else by SIGTERM (which stops runs), and kill what is there two seconds after.

    Returns: True when it went by itself.
    """
    process = process_of(running)
    if process is None:
        return True
    asked = token is not None and _ask(running, token, keep_runs=keep_runs)
    if not asked:
        with suppress(psutil.Error):
            process.send_signal(signal.SIGTERM)
    if wait_until(lambda: not _there(process), KILL_AFTER_S):
        return True
    with suppress(psutil.Error):
        process.kill()
    wait_until(lambda: not _there(process), 5)
    return False


def wait_until(met: Callable[[], bool], within_s: float) -> bool:
    """Ask often, until it is met or the time is over."""
    deadline = time.monotonic() + within_s
    while not met():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.03)
    return True


def _there(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _ask(running: Running, token: str, *, keep_runs: bool) -> bool:
    body = {"runs": "keep" if keep_runs else "stop"}
    try:
        HttpApi(Server(url=running.url, token=token), timeout_s=5).call("POST", "/api/server/stop", {**body})
    except CodefyError:
        return False
    return True


def _tail(path: Path, offset: int) -> str:
    with path.open("rb") as log:
        log.seek(offset, os.SEEK_SET)
        lines = log.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-LOG_TAIL_LINES:]) or "(it wrote nothing)"
