"""A copy of the repository whose launcher meets a fake Python, pip and uv: nothing is downloaded."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

FAKE = f"""#!{sys.executable} -SE
import json, os, pathlib, shutil, sys
own, words = pathlib.Path(sys.argv[0]), sys.argv[1:]
is_uv = own.name == "uv"
if not is_uv and words[:2] not in (["-m", "venv"], ["-m", "pip"]):
    name = str(own) if words[0].endswith("bootstrap.py") else {sys.executable!r}
    os.execv({sys.executable!r}, [name, *words])  # the set-up is to find this file as sys.executable
with open(os.environ["FAKE_LOG"], "a") as log:
    print(json.dumps([own.name, *words]), file=log)
if os.environ.get("FAKE_FAIL") and os.environ["FAKE_FAIL"] in " ".join(words):
    print("some output of the installer\\nConnection broken")
    sys.exit(3)
if words[1] == "venv":
    folder = pathlib.Path(words[2]) / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(own, folder / "python")
elif "--report" in words:
    packages = json.loads(os.environ["FAKE_PACKAGES"])
    report = {{"install": [{{"metadata": {{"name": n, "version": v}}}} for n, v in packages.items()]}}
    pathlib.Path(words[words.index("--report") + 1]).write_text(json.dumps(report))
elif any(word.startswith("uv==") for word in words):
    shutil.copy(own, own.parent / "uv")
"""

CPU_BUILD = {"torch": "2.13.0+cpu", "sympy": "1.14.0"}


@dataclass
class Ran:
    status: int
    out: str
    err: str
    calls: list[str]
    """What pip, venv and uv were asked, without paths."""


@dataclass
class Machine:
    """A person's machine: a PATH with the fake Python, and a home."""

    folder: Path
    packages: dict[str, str] = field(default_factory=lambda: dict(CPU_BUILD))

    def __post_init__(self) -> None:
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        python = self.bin / "python3"
        python.write_text(FAKE)
        python.chmod(0o755)

    @property
    def calls_file(self) -> Path:
        return self.folder / "calls"

    def environ(self, root: Path, extra: dict[str, str]) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("CODEFYUI_", "CDUI_"))
        }
        return (
            kept
            | {
                "PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin",
                "HOME": str(self.folder),
                "PYTHONPATH": str(root),
                "PYTHONDONTWRITEBYTECODE": "1",
                "FAKE_LOG": str(self.calls_file),
                "FAKE_PACKAGES": json.dumps(self.packages),
                "CODEFYUI_USER_DATA_DIR": str(self.folder / "user"),
            }
            | extra
        )

    def run(self, command: Sequence[str | Path], *, root: Path, **extra: str) -> Ran:
        self.calls_file.write_text("")
        ended = subprocess.run(
            command,
            env=self.environ(root, extra),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        calls = [_short(json.loads(line)) for line in self.calls_file.read_text().splitlines()]
        return Ran(ended.returncode, ended.stdout, ended.stderr, calls)


def _short(words: list[str]) -> str:
    if words[1:2] == ["-m"]:
        words = words[2:]
    kept = [word for word in words if not word.startswith(("/", "--quiet", "--python", "-c"))]
    return " ".join(kept)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    folder = tmp_path / "machine"
    folder.mkdir()
    return Machine(folder)


def copy_repository(target: Path) -> Path:
    """What an installation needs to print its version."""
    target.mkdir(parents=True)
    for name in ("cdui", "install.sh", "pyproject.toml", "constraints.txt", ".gitignore"):
        shutil.copy(REPOSITORY / name, target / name)
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "scripts", target / "scripts", ignore=skip)
    package = target / "codefyui_core"
    package.mkdir()
    for name in ("__init__.py", "_version.py", "errors.py"):
        shutil.copy(REPOSITORY / "codefyui_core" / name, package / name)
    shutil.copytree(REPOSITORY / "codefyui_core" / "cli", package / "cli", ignore=skip)
    plugin = target / "plugins" / "sample"
    plugin.mkdir(parents=True)
    (plugin / "pyproject.toml").write_text("[project]\nname = 'sample'\n")
    return target


@dataclass
class Installation:
    root: Path
    machine: Machine

    def run(self, *words: str, **extra: str) -> Ran:
        return self.machine.run([self.root / "cdui", *words], root=self.root, **extra)

    def edit(self, name: str, text: str) -> None:
        path = self.root / name
        path.write_text(path.read_text() + text)


@pytest.fixture
def installation(tmp_path: Path, machine: Machine) -> Installation:
    """A checkout that was never set up."""
    return Installation(copy_repository(tmp_path / "CodefyUI"), machine)


@dataclass
class Repository:
    """A git repository with releases."""

    root: Path

    def git(self, *words: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
        command = ["git", *identity, "-C", str(self.root), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def release(self, version: str, tag: str) -> None:
        (self.root / "codefyui_core" / "_version.py").write_text(f'__version__ = "{version}"\n')
        self.git("add", "-A")
        self.git("commit", "-qm", version)
        self.git("tag", tag)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Releases 0.1.0, 0.2.0 and 0.10.0, and a later commit that isn't released."""
    made = Repository(copy_repository(tmp_path / "origin"))
    made.git("init", "-q")
    for version in ("0.1.0", "0.2.0", "0.10.0"):
        made.release(version, version)
    made.git("tag", "nightly")
    made.release("0.11.0", "0.11.0-rc1")
    return made
