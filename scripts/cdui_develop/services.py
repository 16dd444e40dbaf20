"""The services that some tests start, and how to get them on Debian and Ubuntu."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Service:
    """A program that tests start themselves. Tests say ``@pytest.mark.needs("<name>")``."""

    name: str
    package: str
    programs: Sequence[str]
    """Any of these: names on PATH, or patterns of absolute paths."""

    def present(self) -> bool:
        return any(_found(program) for program in self.programs)


SERVICES = (
    Service(name="postgresql", package="postgresql", programs=("initdb", "/usr/lib/postgresql/*/bin/initdb")),
    Service(name="chromium", package="chromium", programs=("chromium", "chromium-browser", "google-chrome")),
    Service(name="nginx", package="nginx-light", programs=("nginx", "/usr/sbin/nginx")),
    Service(name="openssl", package="openssl", programs=("openssl",)),
    Service(name="sshd", package="openssh-server", programs=("sshd", "/usr/sbin/sshd")),
)


def _found(program: str) -> bool:
    if not program.startswith("/"):
        return shutil.which(program) is not None
    return next(Path("/").glob(program.lstrip("/")), None) is not None


def missing(services: Iterable[Service] = SERVICES) -> list[Service]:
    return [service for service in services if not service.present()]


def on_ci(environ: Mapping[str, str] = os.environ) -> bool:
    """A missing service is then a failure."""
    return environ.get("CI", "").lower() in {"1", "true", "yes"}


def install(services: Sequence[Service], run: Callable[..., object] = subprocess.run) -> None:
    """By apt, as root, quietly; what can't be installed stays missing."""
    if not services or shutil.which("apt-get") is None or os.geteuid() != 0:
        return
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    packages = [service.package for service in services]
    print(f"== services: apt-get install {' '.join(packages)}", flush=True)
    patience = ("-o=Acquire::Retries=1", "-o=Acquire::http::Timeout=20")
    quiet = ("-qq", "-o=Dpkg::Use-Pty=0", "--yes", "--no-install-recommends")
    for command in (
        ["apt-get", "-qq", *patience, "update"],
        ["apt-get", *quiet, *patience, "install", *packages],
    ):
        run(command, env=environ, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
