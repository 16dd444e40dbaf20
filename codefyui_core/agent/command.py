"""What the commands of ``cdui agent`` do, free of click: start, stop, status, forget."""

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from codefyui_core.errors import StartProblem
from codefyui_core.files import write_private
from codefyui_core.loading import Registry
from codefyui_core.outputs import OutputStore
from codefyui_core.plugin.values import JsonObject
from codefyui_core.settings import Install

from . import background
from .credentials import forget as forget_file
from .credentials import load
from .folder import is_publishing
from .identity import default_name
from .lock import PidFile, is_held
from .machine import FILES_WITHIN_S
from .places import LOCAL, Places, key_of
from .plan import AgentPlan
from .saved import read_saved

log = logging.getLogger("codefyui.agent")
STOP_WITHIN_S = 30.0
"""10 s of grace for the runs, and what it takes to deliver their ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus:
    """One address that this user data has an agent, or a credential, for."""

    key: str
    name: str
    url: str
    enrolled: bool
    running: bool
    pid: int | None
    """Of a background agent."""

    def row(self) -> JsonObject:
        return {
            "key": self.key,
            "name": self.name,
            "url": self.url,
            "enrolled": self.enrolled,
            "running": self.running,
            "pid": self.pid,
        }


def settle_backends(registry: Registry, given: Mapping[str, Mapping[str, object]], places: Places) -> None:
    """Merge the options that storage backends own into ``agent.json``. Blocking.

    Raises: UsageProblem, StartProblem; also for a change while an agent runs.
    """
    saved = read_saved(places.saved)
    settled = dict(saved)
    for name, backend in registry.backends.items():
        answer = backend.settle(given.get(name, {}), saved.get(name, {}))
        if answer:
            settled[name] = answer
        else:
            settled.pop(name, None)
    if settled == saved:
        return
    if _any_runs(places.user_data):
        raise StartProblem(
            "An agent runs with this user-data folder, and these options would change its storage. Stop it "
            "first: cdui agent stop"
        )
    places.saved.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(places.saved, json.dumps(settled, indent=1).encode())


def _any_runs(user_data: Path) -> bool:
    """Does any agent of this folder run, instances included?"""
    instances = Places(user_data=user_data, key=LOCAL).instances.glob("*.lock")
    return any(status.running for status in statuses(user_data)) or any(is_held(lock) for lock in instances)


def start_background(plan: AgentPlan, install: Install, *, wait_s: float = background.WAIT_S) -> str:
    """Start a background agent and wait until it is connected. Answers the worker's name.

    Raises: StartProblem when one runs already, or it ended.
    """
    places = Places(user_data=install.user_data, key=plan.checked().key)
    running = _status(places)
    if running.running:
        raise StartProblem(f"The agent for {plan.url or 'this server'} runs already. See: cdui agent status")
    started = background.start(plan, install, wait_s=wait_s)
    return started.name


def start_same_host(install: Install, name: str | None = None) -> str:
    """The background agent of the server of the same user data; one that runs already is fine, and an
    enrolled one keeps its name. Answers the worker's name.

    Raises: CodefyError.
    """
    places = Places(user_data=install.user_data, key=LOCAL)
    status = _status(places)
    if status.running:
        return status.name or default_name()
    enrolled = status.name if status.enrolled else ""
    plan = AgentPlan(name=None if enrolled else name)
    return start_background(plan, install) or enrolled or name or default_name()


def stop_background(user_data: Path, key: str, *, writes_for_s: float = 0.0) -> bool:
    """Ask a background agent to stop, and wait; killed when it doesn't within 30 s, to which the time counts
    that it takes to write recorded outputs, ``writes_for_s`` at most, or to deliver files. False: none runs.
    """
    places = Places(user_data=user_data, key=key)
    path = places.pid
    found = PidFile.read(path)
    if found is None or not found.lives:
        with suppress(OSError):
            path.unlink()
        return False
    with suppress(ProcessLookupError):
        os.kill(found.pid, signal.SIGTERM)
    outputs = OutputStore(places.outputs, limit_bytes=0)
    busy_for_s = max(writes_for_s, FILES_WITHIN_S)
    if not _gone(
        found, STOP_WITHIN_S, lambda: outputs.is_writing() or is_publishing(places.spools), busy_for_s
    ):
        with suppress(ProcessLookupError):
            os.kill(found.pid, signal.SIGKILL)
        _gone(found, 5.0)
    with suppress(OSError):
        path.unlink()
    return True


def drain_background(user_data: Path, key: str) -> bool:
    """Ask a background agent to stop after the runs that it has; doesn't wait. False: none runs.

    Raises: StartProblem where that can't be asked.
    """
    found = PidFile.read(Places(user_data=user_data, key=key).pid)
    if found is None or not found.lives:
        return False
    if sys.platform == "win32":
        raise StartProblem(
            "An agent on Windows can't be asked to stop after its runs. Drain its worker instead."
        )
    with suppress(ProcessLookupError):
        os.kill(found.pid, signal.SIGUSR1)
    return True


def _gone(
    found: PidFile,
    within_s: float,
    is_writing: Callable[[], bool] = lambda: False,
    writes_for_s: float = 0.0,
) -> bool:
    """``writes_for_s``: so much longer as long as it writes."""
    deadline = time.monotonic() + within_s
    last = deadline + writes_for_s
    while found.lives:
        now = time.monotonic()
        if now < last and is_writing():
            deadline = max(deadline, now + within_s)
        if now > deadline:
            return False
        _reap(found.pid)
        time.sleep(0.05)
    return True


def _reap(pid: int) -> None:
    """It may be our own child."""
    with suppress(ChildProcessError, OSError):
        os.waitpid(pid, os.WNOHANG)


def background_keys(user_data: Path) -> Sequence[str]:
    """Keys of the background agents that run."""
    found = []
    for path in sorted((user_data / "agent").glob("*.pid")):
        one = PidFile.read(path)
        if one is not None and one.lives:
            found.append(path.stem)
    return found


def statuses(user_data: Path) -> Sequence[AgentStatus]:
    """Every address that there is a credential or an agent for."""
    folder = user_data / "agent"
    keys = {path.stem for suffix in ("token", "pid", "lock") for path in folder.glob(f"*.{suffix}")}
    all_ = (_status(Places(user_data=user_data, key=key)) for key in sorted(keys))
    return [status for status in all_ if status.enrolled or status.running]


def _status(places: Places) -> AgentStatus:
    stored = load(places.credential, log)
    pid = PidFile.read(places.pid)
    lives = pid is not None and pid.lives
    return AgentStatus(
        key=places.key,
        name=stored.name if stored else "",
        url=stored.url if stored else "",
        enrolled=stored is not None and stored.enrolled,
        running=lives or is_held(places.lock),
        pid=pid.pid if pid is not None and lives else None,
    )


def forget(user_data: Path, url: str | None) -> bool:
    """Delete the credential of an address (None: of the own server), so that the next start enrolls again.

    Raises: StartProblem while its agent runs; UsageProblem.
    """
    places = Places(user_data=user_data, key=LOCAL if url is None else key_of(url))
    if _status(places).running:
        raise StartProblem("Its agent runs. Stop it first: cdui agent stop")
    return forget_file(places.credential)
