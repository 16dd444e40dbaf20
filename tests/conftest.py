"""Services that several folders of tests share: a PostgreSQL server of our own."""

import os
import pwd
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass
class PostgreSQL:
    """A server that listens on a socket in its folder, without fsync: tests end it, nobody pulls its plug."""

    binaries: Path
    folder: Path

    def run(self, program, *arguments):
        """Run one of its programs, as a user that it accepts."""
        found = subprocess.run(
            [*_as_postgres(), str(self.binaries / program), *arguments],
            check=False,
            capture_output=True,
            text=True,
            cwd="/",
            timeout=60,
        )
        assert found.returncode == 0, found.stderr
        return found.stdout

    def start(self):
        data = str(self.folder / "data")
        self.run("initdb", "-D", data, "-U", "x", "--auth=trust", "--no-sync", "--encoding=UTF8")
        options = f"-k {self.folder} -c listen_addresses= -c fsync=off -c max_connections=60"
        self.run("pg_ctl", "-D", data, "-w", "-l", str(self.folder / "log"), "-o", options, "start")
        self.run("createdb", "-h", str(self.folder), "-U", "x", "test")

    def stop(self):
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", "immediate", "stop")

    def empty_database(self):
        """The URL of the one that tests use in turn, emptied."""
        empty = "DROP SCHEMA public CASCADE; CREATE SCHEMA public"
        self.run("psql", "-q", "-h", str(self.folder), "-U", "x", "-c", empty, "test")
        return f"postgresql+asyncpg://x@/test?host={self.folder}"


def _as_postgres():
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]


def _binaries():
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    if found:
        return found[-1].parent
    if on_path:
        return Path(on_path).parent
    return pytest.fail("PostgreSQL isn't installed; on Debian: apt-get install postgresql")


@pytest.fixture(scope="session")
def postgresql():
    """Started once, when the first test asks for it."""
    folder = Path(tempfile.mkdtemp(prefix="cdui-pg-", dir="/tmp"))
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
    server = PostgreSQL(_binaries(), folder)
    try:
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
