"""A PostgreSQL server of a schedule's own, which listens on a socket in its folder."""

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

from codefyui_core.errors import CodefyError

from .processes import wait_for

READY_S = 60.0
OPTIONS = ("-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=60")
"""Processes are killed here, and no plug is pulled: what was written is there after a kill without a sync, too."""


class PostgreSQL:
    """Made and started by ``open``; ``kill`` and ``start`` in turn; gone after ``close``."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self.folder = folder
        self._binaries = binaries
        self._popen: subprocess.Popen[bytes] | None = None

    @classmethod
    def open(cls) -> "PostgreSQL":
        """Raises: CodefyError when PostgreSQL isn't installed."""
        binaries = _binaries()
        folder = Path(tempfile.mkdtemp(prefix="cdui-faults-pg-", dir="/tmp"))  # paths of sockets are short
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(folder, user.pw_uid, user.pw_gid)
        made = cls(binaries, folder)
        with ExitStack() as undo:
            undo.callback(made.close)
            made._begin()
            undo.pop_all()
        return made

    def _begin(self) -> None:
        self.run("initdb", "-D", self.data, "-U", "faults", "--auth=trust", "--no-sync", "--encoding=UTF8")
        self.start()
        wait_for(self.ready, READY_S, f"PostgreSQL to be ready, see {self.folder}/log")
        self.run("createdb", "-h", str(self.folder), "-U", "faults", "faults")

    @property
    def data(self) -> str:
        return str(self.folder / "data")

    @property
    def url(self) -> str:
        return f"postgresql+asyncpg://faults@/faults?host={self.folder}"

    @property
    def up(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    def run(self, program: str, *arguments: str) -> None:
        """One of its programs, as a user that it accepts.

        Raises: CodefyError with what it said.
        """
        words = [*_as_postgres(), str(self._binaries / program), *arguments]
        done = subprocess.run(words, check=False, capture_output=True, text=True, cwd="/", timeout=60)
        if done.returncode:
            raise CodefyError(f"{program} failed: {done.stderr.strip()}")

    def start(self) -> None:
        words = [str(self._binaries / "postgres"), "-D", self.data, "-k", str(self.folder), *OPTIONS]
        with (self.folder / "log").open("ab") as log:
            self._popen = subprocess.Popen(
                [*_as_postgres(), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )

    def ready(self) -> bool:
        with suppress(CodefyError):
            self.run("pg_isready", "-q", "-h", str(self.folder), "-U", "faults")
            return True
        return False

    def kill(self) -> None:
        """All of its processes at once: no new one starts while one of them holds the shared memory."""
        if self._popen is None:
            return
        with suppress(psutil.Error):
            main = psutil.Process(self._popen.pid)
            main.suspend()
            all_of_it = [main, *main.children(recursive=True)]
            for process in all_of_it:
                with suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(all_of_it[1:], timeout=10)
        self._popen.wait(10)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _as_postgres() -> list[str]:
    """It refuses to run as root."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]


def _binaries() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    if not found and on_path is None:
        raise CodefyError("PostgreSQL isn't installed. On Debian: apt-get install postgresql")
    return found[-1].parent if found else Path(str(on_path)).parent
