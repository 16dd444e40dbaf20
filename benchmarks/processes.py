"""A control plane and agents as processes of their own on loopback, in folders of their own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import psutil

from codefyui_core.cli.client import HttpApi, Running, Server

T = TypeVar("T")
CHECKOUT = Path(__file__).parents[1]
ELSEWHERE = CHECKOUT / "scripts" / "cdui_develop" / "elsewhere.py"
FINAL = frozenset({"succeeded", "failed", "cancelled", "interrupted"})


def wait_for(met: Callable[[], T], what: str, within_s: float = 120.0) -> T:
    """Ask until the answer is true; the answer.

    Raises: TimeoutError naming what was waited for.
    """
    deadline = time.monotonic() + within_s
    while not (answer := met()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_s:g} s: {what}")
        time.sleep(0.01)
    return answer


@dataclass(slots=True)
class Process:
    """A child, and the file with all that it says."""

    popen: "subprocess.Popen[bytes]"
    log: Path

    @property
    def pid(self) -> int:
        return self.popen.pid

    def check(self) -> None:
        if self.popen.poll() is not None:
            raise RuntimeError(
                f"it ended with {self.popen.returncode}:\n{self.log.read_text(errors='replace')}"
            )

    def worked_s(self) -> float:
        """Processor time of the process itself until now, in seconds."""
        spent = psutil.Process(self.pid).cpu_times()
        return float(spent.user + spent.system)

    def kill(self) -> None:
        """Without a chance to say anything; what is below it is its own affair."""
        self.popen.kill()
        self.popen.wait()

    def end(self) -> None:
        """And all below it."""
        below: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            below = psutil.Process(self.pid).children(recursive=True)
        self.popen.send_signal(signal.SIGTERM)
        try:
            self.popen.wait(40)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        _, alive = psutil.wait_procs(below, timeout=10)
        for left in alive:
            left.kill()


@dataclass(slots=True, kw_only=True)
class Site:
    """One control plane and its agents. ``settings`` are environment variables for all of them."""

    root: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    _processes: list[Process] = field(default_factory=list)

    @property
    def user_data(self) -> Path:
        return self.root / "server"

    def spawn(self, name: str, words: Sequence[str], user_data: Path, **settings: str) -> Process:
        ours = {
            "CODEFYUI_DIR": str(CHECKOUT),
            "CODEFYUI_USER_DATA_DIR": str(user_data),
            "CODEFYUI_DATA_DIR": str(self.root / "data"),
        }
        env = {key: value for key, value in os.environ.items() if not key.startswith("CODEFYUI_")}
        log = self.root / f"{name}.log"
        with log.open("wb") as out:
            popen = subprocess.Popen(
                [sys.executable, *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**env, **ours, **self.settings, **settings},
                cwd=self.root,
                start_new_session=True,
            )
        process = Process(popen, log)
        self._processes.append(process)
        return process

    def start_server(self, port: int = 0) -> Process:
        """Returns when it is ready: it listens and knows its nodes. Port 0: a free one."""
        server = self.spawn_server(port)
        self.wait_ready(server)
        return server

    def spawn_server(self, port: int = 0) -> Process:
        """Returns at once."""
        return self.spawn("server", ["-m", "codefyui_core.control", "--port", str(port)], self.user_data)

    def wait_ready(self, server: Process) -> None:
        def ready() -> bool:
            server.check()
            running = Running.read(self.user_data)
            if running is None or running.pid != server.pid:
                return False
            return bool(self.get("/api/health")["status"] == "ready")

        wait_for(ready, "the server to be ready")

    def start_agent(self, name: str = "bench", *, elsewhere: bool = False) -> Process:
        """Returns when it is online. ``elsewhere``: as on a machine of its own, with which no folder is shared."""
        token = str(self.post("/api/workers/tokens", {})["token"])
        url = self._running().url
        words = ["agent", "start", "--foreground", "--control", url, "--token", token, "--name", name]
        if elsewhere:
            own = {
                "CODEFYUI_DATA_DIR": str(self.root / f"own-{name}"),
                "CODEFYUI_CUSTOM_NODES_DIR": str(self.root / "data" / "custom_nodes"),
            }
            agent = self.spawn(name, [str(ELSEWHERE), name, *words], self.root / name, **own)
        else:
            agent = self.spawn(name, ["-m", "codefyui_core.cli", *words], self.root / name)

        def online() -> bool:
            agent.check()
            workers = self.get("/api/workers")["workers"]
            return any(one["name"] == name and one["status"] == "online" for one in workers)

        wait_for(online, "the agent to be online")
        return agent

    def url(self) -> str:
        """Where the server of the last start listened."""
        return self._running().url

    def port(self) -> int:
        return int(self.url().rpartition(":")[2])

    def get(self, path: str) -> Any:
        return self._api().call("GET", path)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self._api().call("POST", path, cast("Any", body))

    def wait_end(self, run_id: str, *, stopped: bool = False) -> dict[str, Any]:
        """The row of a run that succeeded, or was ``stopped``."""

        def ended() -> dict[str, Any] | None:
            row: dict[str, Any] = self.get(f"/api/runs/{run_id}")
            return row if row["status"] in FINAL else None

        row = wait_for(ended, f"the end of {run_id}")
        assert row is not None
        if row["status"] not in ({"succeeded", "cancelled"} if stopped else {"succeeded"}):
            raise RuntimeError(f"{run_id} didn't succeed: {row}")
        return row

    def settle(self) -> None:
        """Waits until no process of it, those below it included, has worked for a second."""

        def idle() -> bool:
            before = self._worked_s()
            time.sleep(1.0)
            return self._worked_s() - before < 0.05

        wait_for(idle, "the site to be idle")

    def _worked_s(self) -> float:
        worked = 0.0
        for process in self._processes:
            parent = psutil.Process(process.pid)
            for one in (parent, *parent.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    times = one.cpu_times()
                    worked += times.user + times.system
        return worked

    def end(self) -> None:
        """The youngest first."""
        while self._processes:
            self._processes.pop().end()

    def _running(self) -> Running:
        running = Running.read(self.user_data)
        if running is None:
            raise RuntimeError("the server isn't there")
        return running

    def _api(self) -> HttpApi:
        token = (self.user_data / "session.token").read_text()
        return HttpApi(Server(url=self._running().url, token=token))


@contextmanager
def site(root: Path, **settings: str) -> Iterator[Site]:
    """Nothing is started yet; at the end nothing is left."""
    root.mkdir(parents=True, exist_ok=True)
    made = Site(root=root, settings=settings)
    try:
        yield made
    finally:
        made.end()
