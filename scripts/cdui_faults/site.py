"""A server and two agents on this machine, each agent behind a line that can be broken."""

import os
import random
import shutil
import signal
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil

from codefyui_core.cli.client import HttpApi, Running, Server
from codefyui_core.errors import CodefyError

from . import uploads
from .databases import DatabaseKind, Store, open_store
from .machines import Machine, Means
from .processes import MARK, PLACE, Process, marked, spawn, wait_for
from .proxy import Proxy
from .schedule import AGENTS, PLACES, SERVER, Pace
from .storages import StorageKind, open_storage

ROOT = Path(__file__).resolve().parents[2]
READY_S = 120.0
ELSEWHERE = ROOT / "scripts" / "cdui_develop" / "elsewhere.py"
BLOCKED = ("nodes_torch", "web")
"""Plugins that cost each start seconds, and that no run of a schedule uses."""


class Site:
    """Folders, machines, processes, lines, database and API. Lives for one schedule or several."""

    def __init__(
        self,
        folder: Path,
        pace: Pace,
        database: DatabaseKind = DatabaseKind.SQLITE,
        storage: StorageKind = StorageKind.NONE,
    ) -> None:
        """Raises: CodefyError when the database or the store isn't installed."""
        folder.mkdir(parents=True)
        self.folder = folder
        self.pace = pace
        self.mark = uuid4().hex
        self.began_ms = int(time.time() * 1000)
        self.port = _free_port()
        self.processes: dict[str, Process] = {}
        self.machines: dict[str, Machine] = {}
        self._beside = ExitStack()
        with ExitStack() as undo:
            undo.callback(self._beside.close)
            self.means = Means.find(folder)
            self._make_machines()
            self.store: Store = open_store(database, self.user_data(SERVER))
            self._beside.callback(self.store.close)
            self.carrying = open_storage(storage)
            self._beside.callback(self.carrying.close)
            self.proxy = Proxy(self.port)
            self._beside.callback(self.proxy.close)
            self.ports = {name: self.proxy.open(name) for name in AGENTS}
            undo.pop_all()
        self.journals.mkdir()
        self._nodes.mkdir()
        shutil.copy(Path(__file__).with_name("counting_node.py"), self._nodes)
        if self.carries:
            uploads.put(self.data(SERVER) / "files")

    def _make_machines(self) -> None:
        for name in PLACES:
            self.machines[name] = Machine(name, self.folder, self.means)
            self._beside.callback(self.machines[name].close)

    @property
    def journals(self) -> Path:
        return self.folder / "journals"

    @property
    def _nodes(self) -> Path:
        return self.folder / "custom_nodes"

    @property
    def carries(self) -> bool:
        """Its agents are on machines of their own, so files have to get there."""
        return self.carrying.kind is not StorageKind.NONE

    def user_data(self, name: str) -> Path:
        return self.machines[name].user_data

    def data(self, name: str) -> Path:
        """Its data folder; on its disk, where files are carried."""
        return self.user_data(name) / "data" if self.carries else self.folder / "data"

    def usable(self, name: str) -> bool:
        """What that place needs besides its process is there: room on its disk; a database for the server."""
        return not self.machines[name].full and (name != SERVER or self.store.up)

    def lose_power(self, name: str) -> None:
        """Every process of that machine ends at once."""
        self.processes[name].kill()
        there = marked(self.mark, place=name)
        for process in there:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(there, timeout=10)

    def api(self, timeout_s: float = 5.0) -> HttpApi:
        token = (self.user_data(SERVER) / "session.token").read_text(encoding="utf-8").strip()
        return HttpApi(Server(url=f"http://127.0.0.1:{self.port}", token=token), timeout_s=timeout_s)

    def get(self, path: str, timeout_s: float = 5.0) -> Any:
        return self.api(timeout_s).call("GET", path)

    def post(self, path: str, body: dict[str, Any] | None = None, timeout_s: float = 5.0) -> Any:
        return self.api(timeout_s).call("POST", path, body)

    def start(self, name: str) -> None:
        """The process alone; nothing is waited for."""
        if name == SERVER:
            words = ["-m", "codefyui_core.control", "--port", str(self.port)]
        else:
            control = f"http://127.0.0.1:{self.ports[name]}"
            words = [str(ELSEWHERE), name] if self.carries else ["-m", "codefyui_core.cli"]
            words += ["agent", "start", "--foreground", "--control", control]
            words += [] if self._enrolled(name) else ["--token", self._token(), "--name", name]
        self.processes[name] = spawn(
            words, log=self.folder / f"{name}.log", environ=self._environ(name), cwd=self.folder
        )

    def up(self) -> None:
        """Everything is started and answers."""
        self.start(SERVER)
        wait_for(self.server_ready, READY_S, f"the server to be ready, see {self.folder}/server.log")
        for name in AGENTS:
            self.start(name)
        wait_for(self.workers_online, READY_S, f"both workers online, see {self.folder}")

    def server_ready(self) -> bool:
        """It is the process that we started, and it knows its nodes."""
        running = Running.read(self.user_data(SERVER))
        if running is None or running.pid != self.processes[SERVER].popen.pid:
            return False
        with suppress(CodefyError, OSError):
            return bool(self.get("/api/health")["status"] == "ready")
        return False

    def workers_online(self) -> bool:
        with suppress(CodefyError, OSError):
            return self.online() == set(AGENTS)
        return False

    def online(self) -> set[str]:
        """Raises: CodefyError, OSError when the server doesn't answer."""
        rows = self.get("/api/workers", 3.0)["workers"]
        return {str(row["name"]) for row in rows if row["status"] in {"online", "degraded"}}

    def down(self) -> list[str]:
        """Stop as a person would, agents first; what went wrong with it."""
        problems = []
        for name in (*AGENTS, SERVER):
            process = self.processes.get(name)
            if process is None or not process.alive:
                continue
            process.expected = True
            process.wake()
            process.send(signal.SIGTERM)
            try:
                status = process.popen.wait(60)
            except Exception as error:
                process.kill()
                problems.append(f"{name} didn't stop within 60 s ({error})")
            else:
                problems += [] if status == 0 else [f"{name} was stopped and ended with status {status}"]
        return problems

    def close(self) -> None:
        """What isn't a process of CodefyUI: lines, disks, the database. Its files stay, in ``folder``."""
        self._beside.close()

    def _enrolled(self, name: str) -> bool:
        return any(self.user_data(name).glob("agent/*.token"))

    def _token(self) -> str:
        return str(self.post("/api/workers/tokens", {})["token"])

    def _environ(self, name: str) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("CODEFYUI_")}
        return {
            **inherited,
            **self.machines[name].environ,
            MARK: self.mark,
            PLACE: name,
            "CODEFYUI_DIR": str(ROOT),
            "CODEFYUI_USER_DATA_DIR": str(self.user_data(name)),
            "CODEFYUI_DATA_DIR": str(self.data(name)),
            "CODEFYUI_CUSTOM_NODES_DIR": str(self._nodes),
            "CODEFYUI_WORKER_RESUME_GRACE_S": f"{self.pace.grace_s:g}",
            "CODEFYUI_PLUGINS_BLOCK": ",".join((*BLOCKED, *self.carrying.blocked)),
            "CODEFYUI_DATABASE_URL": self.store.url,
            "CODEFYUI_RUN_RETENTION_KEEP_LAST": "-1",
            **(self.carrying.settings if name == SERVER else {}),
        }


def _free_port() -> int:
    """Outside of what systems give to outgoing connections, so that it stays free while the server is down."""
    for port in random.sample(range(20_000, 30_000), 100):
        with socket.socket() as found, suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port
    raise OSError("no free port between 20000 and 30000")
