"""A control plane and agents as processes of their own, in folders of their own, for one test."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from codefyui_core.cli.client import HttpApi, Running, Server

NODES = Path(__file__).parent / "custom_nodes"
ELSEWHERE = Path(__file__).parents[2] / "scripts" / "cdui_develop" / "elsewhere.py"
WITHOUT_TORCH = {"CODEFYUI_PLUGINS_BLOCK": "nodes_torch"}
"""Importing torch costs each server and agent several seconds of a core, four times: by helper and zygote."""
FINAL = {"succeeded", "failed", "cancelled", "interrupted"}


def wait_for(met: Callable[[], Any], within_s: float = 60, what: str = "the condition") -> Any:
    """Ask until the answer is true; the answer. Fails with ``what`` when the time is over."""
    deadline = time.monotonic() + within_s
    while True:
        answer = met()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {what}")
        time.sleep(0.05)


def graph(node_type: str, params: Mapping[str, Any] | None = None, *, name: str = "trial") -> dict[str, Any]:
    """Start -> one node."""
    return {
        "name": name,
        "nodes": [
            {"id": "start", "type": "Start", "position": {"x": 0, "y": 0}, "data": {"params": {}}},
            {
                "id": "node",
                "type": node_type,
                "position": {"x": 200, "y": 0},
                "data": {"params": dict(params or {})},
            },
        ],
        "edges": [
            {
                "id": "e0",
                "source": "start",
                "target": "node",
                "sourceHandle": "trigger",
                "targetHandle": "__trigger",
                "type": "trigger",
            }
        ],
    }


def free_port() -> int:
    """One that the system gives to no outgoing connection, so that a server finds it again after a restart."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as trial, suppress(OSError):
            trial.bind(("127.0.0.1", port))
            return port


@dataclass
class Process:
    """One process of the site and the file with all that it said."""

    popen: "subprocess.Popen[bytes]"
    log: Path

    @property
    def pid(self) -> int:
        return self.popen.pid

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait(30)

    def terminate(self, within_s: float = 40) -> int:
        self.popen.terminate()
        return self.popen.wait(within_s)

    def wait(self, within_s: float = 60) -> int:
        return self.popen.wait(within_s)

    def descendants(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.pid).children(recursive=True)
        return []


@dataclass
class Site:
    """Folders, processes, and the API."""

    root: Path
    settings: dict[str, str] = field(default_factory=lambda: dict(WITHOUT_TORCH))
    processes: list[Process] = field(default_factory=list)
    server: Process | None = None

    @property
    def user_data(self) -> Path:
        return self.root / "server"

    @property
    def data(self) -> Path:
        return self.root / "data"

    def environ(self, user_data: Path, **more: str) -> dict[str, str]:
        env = {key: value for key, value in os.environ.items() if not key.startswith("CODEFYUI_")}
        checkout = Path(__file__).parents[2]
        return {
            **env,
            "CODEFYUI_DIR": str(checkout),
            "CODEFYUI_USER_DATA_DIR": str(user_data),
            "CODEFYUI_DATA_DIR": str(self.data),
            **self.settings,
            **more,
        }

    def spawn(
        self,
        name: str,
        words: list[str],
        *,
        user_data: Path,
        cwd: Path | None = None,
        python: Path | None = None,
        **env: str,
    ) -> Process:
        """A Python process in a session of its own; what it says goes to a file. ``python``: of another environment."""
        log = self.root / f"{name}-{len(self.processes)}.log"
        with log.open("wb") as out:
            popen = subprocess.Popen(
                [str(python or sys.executable), *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self.environ(user_data, **env),
                cwd=cwd or self.root,
                start_new_session=True,
            )
        process = Process(popen, log)
        self.processes.append(process)
        return process

    # ------------------------------------------------------------ server

    def start_server(
        self, *arguments: str, ready: bool = True, python: Path | None = None, **env: str
    ) -> Process:
        """The control plane; returns once it answers (and knows its nodes, when ``ready``)."""
        custom = self.data / "custom_nodes"
        custom.mkdir(parents=True, exist_ok=True)
        for file in NODES.glob("*.py"):
            if not (custom / file.name).exists():
                shutil.copy(file, custom / file.name)
        words = ["-m", "codefyui_core.control", *(arguments or ("--port", self._port()))]
        self.server = self.spawn("server", words, user_data=self.user_data, python=python, **env)
        process = self.server

        def answers() -> bool:
            assert process.popen.poll() is None, process.said()
            running = Running.read(self.user_data)
            if running is None or running.pid != process.pid:
                return False
            with suppress(Exception):
                health = self.api().call("GET", "/api/health")
                assert isinstance(health, dict)
                return not ready or health["status"] == "ready"
            return False

        wait_for(answers, 90, "the server to be ready")
        return process

    def _port(self) -> str:
        """The port of the last start, so that agents find the server again."""
        file = self.root / "port"
        return file.read_text() if file.exists() else str(free_port())

    def keep_port(self) -> None:
        self.root.joinpath("port").write_text(self.url.rpartition(":")[2])

    @property
    def url(self) -> str:
        running = Running.read(self.user_data)
        assert running is not None
        return running.url

    @property
    def token(self) -> str:
        return (self.user_data / "session.token").read_text()

    def api(self) -> HttpApi:
        return HttpApi(Server(url=self.url, token=self.token))

    def get(self, path: str) -> Any:
        return self.api().call("GET", path)

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return self.api().call("POST", path, body)

    # ------------------------------------------------------------ agents

    def enroll_token(self, **body: Any) -> str:
        return str(self.post("/api/workers/tokens", body)["token"])

    def start_agent(
        self,
        name: str = "box",
        *arguments: str,
        online: bool = True,
        cwd: Path | None = None,
        elsewhere: bool = False,
        python: Path | None = None,
        **env: str,
    ) -> Process:
        """A foreground agent in a user-data folder of its own; enrolls on its first start. ``elsewhere``: as on a
        machine of its own, so that nothing counts as shared with the server by itself. ``online``: returns once it is,
        and has told what it offers.
        """
        user_data = self.root / f"agent-{name}"
        cdui = [str(ELSEWHERE), name] if elsewhere else ["-m", "codefyui_core.cli"]
        words = [*cdui, "agent", "start", "--foreground", "--control", self.url]
        if not list(user_data.glob("agent/*.token")):
            words += ["--token", self.enroll_token(), "--name", name]
        words += arguments
        agent = self.spawn(f"agent-{name}", words, user_data=user_data, cwd=cwd, python=python, **env)
        if online:

            def reported() -> bool:
                row = self.worker(name)
                # Until the first report nothing is refused for what a worker lacks. Trust is part of each.
                return row["status"] in {"online", "degraded"} and row["trust"] is not None

            wait_for(reported, 90, f"{name} online:\n{agent.said()}")
        return agent

    def worker(self, name: str) -> dict[str, Any]:
        rows = [row for row in self.get("/api/workers")["workers"] if row["name"] == name]
        return dict(rows[0]) if rows else {"status": "absent"}

    # ------------------------------------------------------------ runs

    def submit(self, document: dict[str, Any], **options: Any) -> str:
        return str(self.post("/api/runs", {"graph": document, "options": options})["run_id"])

    def run(self, run_id: str) -> dict[str, Any]:
        return dict(self.get(f"/api/runs/{run_id}"))

    def wait_status(self, run_id: str, *statuses: str, within_s: float = 90) -> dict[str, Any]:
        def there() -> dict[str, Any] | None:
            row = self.run(run_id)
            if row["status"] in FINAL and row["status"] not in statuses:
                raise AssertionError(f"{run_id} ended {row['status']}: {row['error']}")
            return row if row["status"] in statuses else None

        return dict(wait_for(there, within_s, f"{run_id} to be {statuses}, is {self.run(run_id)['status']}"))

    def wait_end(self, run_id: str, within_s: float = 120) -> dict[str, Any]:
        return dict(
            wait_for(
                lambda: (row := self.run(run_id))["status"] in FINAL and row, within_s, f"the end of {run_id}"
            )
        )

    def events(self, run_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            cursor = found[-1]["cursor"] if found else 0
            page = self.get(f"/api/runs/{run_id}/events?cursor={cursor}&limit=2000")["events"]
            if not page:
                return found
            found += page

    def holding(self, run_id: str) -> int:
        """Waits until the hold node runs; the pid of the run process."""

        def printed() -> int | None:
            for event in self.events(run_id):
                if event["type"] == "log":
                    for line in event["payload"]["lines"]:
                        if line.startswith("holding in "):
                            return int(line.rpartition(" ")[2])
            return None

        return int(wait_for(printed, 90, f"{run_id} to hold, is {self.run(run_id)}"))

    # ------------------------------------------------------------ end

    def aclose(self) -> None:
        """End what is left, the youngest first; nothing of it may live on."""
        left: list[psutil.Process] = []
        for process in reversed(self.processes):
            left += process.descendants()
            if process.popen.poll() is None:
                process.popen.terminate()
        for process in reversed(self.processes):
            try:
                process.popen.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
        _, alive = psutil.wait_procs(left, timeout=10)
        for orphan in alive:
            orphan.kill()
        assert not alive, f"left behind: {[orphan.cmdline() for orphan in alive if orphan.is_running()]}"

    def story(self) -> str:
        """All that the processes said, for a failure."""
        return "\n".join(f"--- {p.log.name}\n{p.said()}" for p in self.processes)


def metrics(events: list[dict[str, Any]], name: str) -> list[float]:
    """The values of one metric in order."""
    return [
        point["value"]
        for event in events
        if event["type"] == "metric"
        for point in event["payload"]["points"]
        if point["name"] == name
    ]


def gapless(events: list[dict[str, Any]]) -> bool:
    """Cursors from 1 without gaps or repeats."""
    return [event["cursor"] for event in events] == list(range(1, len(events) + 1))


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())
