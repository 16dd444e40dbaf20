"""Environments for tests that have the distributions they should, and no other. Nothing is downloaded: what an
environment needs from elsewhere is copied out of the one that the tests run in.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from importlib.util import cache_from_source
from pathlib import Path

from packaging.requirements import Requirement

OURS = "codefyui-"
"""Distributions of this repository come as wheels."""
PATIENCE_S = 170


class Environment:
    """A virtual environment with what ``requirements`` need, without the distributions of this repository."""

    def __init__(self, folder: Path, *requirements: str) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        _run("-m", "uv", "venv", "-q", "--python", sys.executable, str(folder))
        (site,) = folder.glob("lib/python*/site-packages")
        for name in sorted(_needed(*requirements)):
            _copy(name, site)

    def install(self, *wheels: Path) -> None:
        words = ("--offline", "--no-deps", *map(str, wheels))
        _run("-m", "uv", "pip", "install", "-q", "--python", str(self.python), *words)

    @property
    def environ(self) -> dict[str, str]:
        """Of its processes: nothing leads them elsewhere."""
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CODEFYUI"))
        }
        return inherited | {"HOME": str(self.folder), "VIRTUAL_ENV": str(self.folder)}

    def run(self, *arguments: str) -> str:
        """What its Python prints. Fails with all that it said."""
        done = subprocess.run(
            [str(self.python), *arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            env=self.environ,
            cwd=self.folder,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def build_wheel(source: Path, into: Path) -> Path:
    """The wheel of the distribution whose pyproject.toml lies in ``source``; in a folder of its own below ``into``."""
    folder = into / source.name
    _run("-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=source)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _needed(*wanted: str) -> set[str]:
    """Names of all distributions that these requirements need, read from what is installed here."""
    found: dict[str, set[str]] = {}
    pending = [Requirement(one) for one in wanted]
    while pending:
        requirement = pending.pop()
        extras = {"", *requirement.extras}
        seen = found.setdefault(requirement.name.lower(), set())
        for extra in extras - seen:
            seen.add(extra)
            pending.extend(_requirements(requirement.name, extra))
    return {name for name in found if not name.startswith(OURS)}


def _requirements(of: str, extra: str) -> Iterator[Requirement]:
    for line in distribution(of).requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def _copy(name: str, into: Path) -> None:
    """The files of an installed distribution, as a wheel would lay them out, and what is compiled of them."""
    found = distribution(name)
    for file in found.files or ():
        if ".." in file.parts or "__pycache__" in file.parts:
            continue
        source, target = Path(str(found.locate_file(file))), into / file
        _place(source, target)
        if source.suffix == ".py":
            compiled = Path(cache_from_source(str(source)))
            if compiled.is_file():
                _place(compiled, Path(cache_from_source(str(target))))


def _place(source: Path, target: Path) -> None:
    """By a second name for the same file where that can be, which has its time, too: what is compiled stays valid."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:  # listed twice
        return
    except OSError:
        shutil.copy2(source, target)


def _run(*arguments: str, cwd: Path | None = None) -> None:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=cwd,
    )
    assert done.returncode == 0, done.stdout + done.stderr
