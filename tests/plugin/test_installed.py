"""The distributions as somebody installs them: wheels in a fresh environment that has nothing else."""

import json
import shutil
from pathlib import Path

import pytest

from cdui_develop.environments import Environment, build_wheel

ROOT = Path(__file__).parents[2]
PACK = ROOT / "examples" / "node-pack"
BACKEND = ROOT / "examples" / "storage-backend"

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Distribution -> its wheel: the core and the examples."""
    built = tmp_path_factory.mktemp("wheels")
    found = (build_wheel(source, built) for source in (ROOT, PACK, BACKEND))
    return {wheel.name.partition("-")[0].replace("_", "-"): wheel for wheel in found}


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
