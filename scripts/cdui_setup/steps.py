"""The steps of an installation, in order. Each is skipped when its stamp says that it was done for the same."""

import json
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .console import Console, say
from .layout import Layout
from .problem import SetupProblem
from .stamps import Stamps
from .torch_build import (
    AUTO,
    CPU,
    Accelerators,
    Installer,
    backend_for,
    default_build,
    installer_for,
    packages_of,
)

PIP_ENVIRON = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}


@dataclass
class Setup:
    """One run of the set-up."""

    layout: Layout
    digest: str
    """Of everything that decides about the packages; written last, for the launcher to compare."""
    machine: Accelerators
    choice: str | None = None
    """The build of torch that was asked for now; None: as before."""
    stamps: Stamps = field(init=False)
    console: Console = field(init=False)

    def __post_init__(self) -> None:
        self.stamps = Stamps(self.layout.state)
        self.console = Console(self.layout.log)

    def run(self, *, dev: bool = False) -> None:
        """All that isn't done yet. Raises: SetupProblem."""
        self.layout.log.unlink(missing_ok=True)
        say(f"cdui: setting up CodefyUI in {self.layout.root} (details: {self.layout.log})")
        self._environment()
        self._installer()
        self._torch()
        self._packages()
        if dev:
            self._dev()
        link_environment(self.layout)
        self.stamps.set("ready", self.digest)
        say("cdui: ready")

    def is_done(self, *, dev: bool) -> bool:
        done = self.stamps.get("ready") == self.digest and self.layout.python.exists()
        return done and self._choice() == self.stamps.get("choice") and (not dev or self._dev_is_done())

    def _choice(self) -> str:
        return self.choice or self.stamps.get("choice") or AUTO

    def _environment(self) -> None:
        if self.stamps.get("environment") is None or not self.layout.python.exists():
            self.stamps.drop("installer", "torch", "packages", "dev", "ready")
            with self.console.step(f"Python {platform.python_version()} environment"):
                self.console.run([sys.executable, "-m", "venv", self.layout.venv], cwd=self.layout.root)
            self.stamps.set("environment", platform.python_version())

    def _installer(self) -> None:
        pin = self.layout.pin("uv")
        if self.stamps.get("installer") == pin and self.layout.uv.exists():
            return
        with self.console.step("installer (uv)"):
            self._pip("install", "--quiet", pin)
        self.stamps.set("installer", pin)

    def _torch(self) -> None:
        pin, choice = self.layout.pin("torch"), self._choice()
        backend = backend_for(choice, self.machine)
        before = self.stamps.get("torch")
        if before != f"{pin} {backend}":
            self.stamps.drop("ready")
            if before is not None:
                self.stamps.set("torch", "unknown")  # whatever happens now, it isn't the former one for sure
            with self.console.step(f"PyTorch ({backend})"):
                build = _install_torch(self, pin, backend, anew=before is not None)
            if backend == AUTO and build == CPU:
                say("    The index brings PyTorch without GPU support; choose with: cdui install --gpu cu130")
            self.stamps.set("torch", f"{pin} {backend}")
        self.stamps.set("choice", choice)

    def _packages(self) -> None:
        if self.stamps.get("packages") == self.digest:
            return
        editables = [f"{self.layout.root}[agent,control]", *map(str, self.layout.distributions())]
        with self.console.step("CodefyUI and its libraries"):
            self._uv(*(word for path in editables for word in ("-e", path)))
        self.stamps.set("packages", self.digest)

    def _dev(self) -> None:
        if self._dev_is_done():
            return
        with self.console.step("tools for tests and checks"):
            self._uv("--group", f"{self.layout.root / 'pyproject.toml'}:dev")
        self.stamps.set("dev", self.digest)

    def _dev_is_done(self) -> bool:
        return self.stamps.get("dev") == self.digest

    def _pip(self, *words: str) -> None:
        self.console.run([self.layout.python, "-m", "pip", *words], cwd=self.layout.root, environ=PIP_ENVIRON)

    def _uv(self, *words: str) -> None:
        command: list[str | Path] = [self.layout.uv, "pip", "install", "--python", self.layout.python]
        self.console.run([*command, "-c", self.layout.constraints, *words], cwd=self.layout.root)


def _install_torch(setup: Setup, pin: str, backend: str, *, anew: bool) -> str:
    """The build that was installed. One that is there already is replaced only once the other has arrived."""
    layout, pip = setup.layout, setup._pip
    packages = _look_ahead(pip, pin)
    if installer_for(backend, packages) is Installer.UV:
        command: list[str | Path] = [layout.uv, "pip", "install", "--python", layout.python]
        try:
            setup.console.run(
                [*command, "--reinstall-package", "torch", "--torch-backend", backend, pin], cwd=layout.root
            )
        except SetupProblem:
            if backend != AUTO:
                raise
        else:
            return backend
    if anew:
        pip(
            "install", "--quiet", "--force-reinstall", "--no-deps", pin
        )  # the other build has the same version
    pip("install", "--quiet", pin)
    return default_build(packages)


def _look_ahead(pip: Callable[..., None], pin: str) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip("install", "--quiet", "--dry-run", "--ignore-installed", "--report", str(report), pin)
        return packages_of(json.loads(report.read_text()))


def link_environment(layout: Layout) -> None:
    """``backend/.venv``: run processes work in ``backend``, and tools look for an environment beside them."""
    link = layout.root / "backend" / ".venv"
    link.parent.mkdir(exist_ok=True)
    if not link.is_symlink() and not link.exists():
        link.symlink_to(Path("..", ".venv"))
