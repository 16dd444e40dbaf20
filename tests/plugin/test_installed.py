"""The distributions as somebody installs them: wheels in a fresh environment that has nothing else."""

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PACK = ROOT / "examples" / "node-pack"
BACKEND = ROOT / "examples" / "storage-backend"

pytestmark = pytest.mark.service


def _requirements(of: Distribution, extra: str) -> Iterator[Requirement]:
    for line in of.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def _closure(*wanted: str) -> set[str]:
    """Names of all distributions that these requirements need, read from what is installed here."""
    found: dict[str, set[str]] = {}
    pending = [Requirement(one) for one in wanted]
    while pending:
        requirement = pending.pop()
        extras = {"", *requirement.extras}
        seen = found.setdefault(requirement.name.lower(), set())
        for extra in extras - seen:
            seen.add(extra)
            pending.extend(_requirements(distribution(requirement.name), extra))
    return set(found) - {"codefyui-core"}


def _copy(name: str, into: Path) -> None:
    """The files of an installed distribution, as a wheel would lay them out."""
    found = distribution(name)
    for file in found.files or ():
        if ".." in file.parts or "__pycache__" in file.parts:
            continue
        target = into / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(found.locate_file(file)), target)


class Environment:
    """A virtual environment of the test."""

    def __init__(self, folder: Path, *requirements: str) -> None:
        venv.create(folder, with_pip=True, symlinks=True)
        self.python = folder / "bin" / "python"
        (site,) = folder.glob("lib/python*/site-packages")
        for name in sorted(_closure(*requirements)):
            _copy(name, site)

    def install(self, *wheels: Path) -> None:
        self.run("-m", "pip", "install", "-q", "--no-index", "--no-deps", *map(str, wheels))

    def run(self, *arguments: str) -> str:
        environ = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CODEFYUI"))
        }
        done = subprocess.run(
            [str(self.python), *arguments],
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
            env=environ | {"HOME": str(self.python.parents[1])},
            cwd=self.python.parent,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Distribution -> its wheel: the core and the examples."""
    built = tmp_path_factory.mktemp("wheels")
    for source in (ROOT, PACK, BACKEND):
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)],
            cwd=source,
            check=True,
            capture_output=True,
            timeout=120,
        )
    return {wheel.name.partition("-")[0].replace("_", "-"): wheel for wheel in built.glob("*.whl")}


def test_the_example_pack_needs_the_bare_core_alone(wheels: dict[str, Path], tmp_path: Path) -> None:
    environment = Environment(tmp_path / "env", "codefyui-core", "numpy", "pytest")
    environment.install(wheels["codefyui-core"], wheels["codefyui-example-pack"])
    listed = json.loads(
        environment.run(
            "-c",
            "import json; from codefyui_core.loading import load, load_nodes\n"
            "registry = load(plane=None); nodes = load_nodes(registry)\n"
            "print(json.dumps([[info.distribution, info.version, info.state] for info in registry.plugins]"
            " + sorted(nodes.nodes) + [one.message for one in nodes.problems]))",
        )
    )
    assert ["codefyui-example-pack", "1.0", "loaded"] in listed
    assert {"example:MovingAverage", "Print", "Switch"} <= {one for one in listed if isinstance(one, str)}
    _own_tests_pass(environment, PACK, tmp_path)


def test_the_example_backend_is_loaded_and_passes_its_own_tests(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    environment = Environment(tmp_path / "env", "codefyui-core[agent,control]", "pytest", "pytest-asyncio")
    environment.install(wheels["codefyui-core"], wheels["codefyui-example-drop"])
    said = environment.run(
        "-c",
        "from codefyui_core.loading import load\n"
        "from codefyui_core.plugin import Plane\n"
        "for plane in Plane:\n"
        "    registry = load(plane=plane)\n"
        "    print(plane, registry.backends['drop'].title, *(info.name for info in registry.failed))",
    )
    assert said.splitlines() == ["control Drop folder", "agent Drop folder"]
    _own_tests_pass(environment, BACKEND, tmp_path)


def _own_tests_pass(environment: Environment, example: Path, tmp_path: Path) -> None:
    """As its author runs them, away from the repository."""
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copytree(example / "tests", alone / "tests")
    shutil.copy(example / "pyproject.toml", alone)
    said = environment.run("-m", "pytest", "-q", "-p", "no:cacheprovider", str(alone))
    assert " passed" in said
    assert "failed" not in said
    assert "skipped" not in said


def test_an_agent_installs_without_server_or_database(wheels: dict[str, Path], tmp_path: Path) -> None:
    environment = Environment(tmp_path / "env", "codefyui-core[agent]")
    environment.install(wheels["codefyui-core"])
    said = environment.run(
        "-c",
        "import importlib.util\n"
        "from unittest.mock import MagicMock\n"
        "from codefyui_core.loading import load\n"
        "from codefyui_core.plugin import Plane\n"
        "assert importlib.util.find_spec('sqlalchemy') is None\n"
        "registry = load(plane=Plane.AGENT)\n"
        "assert not registry.failed, registry.failed\n"
        "registry.agent_options()\n"
        "for one in (*registry.connectors.values(), *registry.backends.values()):\n"
        "    print(type(one.agent(MagicMock())).__name__)",
    )
    assert said.split() == ["DirectAgent", "LocalAgent"]
    environment.run("-c", EVERY_MODULE, "agent", "runner", "wire", "runs", "graph", "settings", "loading")


EVERY_MODULE = """
import importlib, pkgutil, sys
for room in sys.argv[1:]:
    package = importlib.import_module(f"codefyui_core.{room}")
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
assert "sqlalchemy" not in sys.modules
"""
