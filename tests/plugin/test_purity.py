"""What may be loaded where, seen from fresh processes: a linter can't see an import at a module's top."""

import json
import subprocess
import sys

import pytest

_LOADED = "\nimport sys, json; print(json.dumps(sorted(sys.modules)))"

DESCRIPTORS = """
from codefyui_core.loading import load
registry = load(plane=None)
assert not registry.failed, registry.failed
"""

CONTROL_HALVES = """
from unittest.mock import MagicMock
from codefyui_core.loading import load
from codefyui_core.plugin import Plane
registry = load(plane=Plane.CONTROL)
for descriptor in (*registry.connectors.values(), *registry.backends.values()):
    descriptor.control(MagicMock())
"""

AGENT_HALVES = CONTROL_HALVES.replace("CONTROL", "AGENT").replace(".control(", ".agent(")


def _modules(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", code + _LOADED], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def _halves(modules: set[str], half: str) -> set[str]:
    return {name for name in modules if name.startswith("codefyui_") and name.endswith(f".{half}")}


def _node_modules(modules: set[str]) -> set[str]:
    """Modules of node classes: the built-in ones, and whatever drags torch in."""
    builtin = {
        name
        for name in modules
        if name.startswith("codefyui_core.builtin.nodes.") and name != "codefyui_core.builtin.nodes.catalog"
    }
    return builtin | (modules & {"torch", "numpy", "sklearn"})


def test_the_contract_alone_needs_neither_aiohttp_nor_click() -> None:
    modules = _modules("import codefyui_core.plugin")
    assert not modules & {"aiohttp", "click", "sqlalchemy", "torch", "cryptography"}


def test_descriptors_load_no_half_no_node_and_no_vendor_library() -> None:
    modules = _modules(DESCRIPTORS)
    assert "codefyui_core.builtin.plugin" in modules
    assert not _halves(modules, "control")
    assert not _halves(modules, "agent")
    assert not _node_modules(modules)
    assert not modules & {"aiohttp", "click", "sqlalchemy", "boto3", "cryptography"}


def test_control_halves_load_no_agent_half_and_no_node() -> None:
    modules = _modules(CONTROL_HALVES)
    assert {"codefyui_core.builtin.local.control", "codefyui_core.builtin.direct.control"} <= modules
    assert not _halves(modules, "agent")
    assert not _node_modules(modules)


def test_agent_halves_load_no_control_half_no_node_and_no_database() -> None:
    modules = _modules(AGENT_HALVES)
    assert {"codefyui_core.builtin.local.agent", "codefyui_core.builtin.direct.agent"} <= modules
    assert not _halves(modules, "control")
    assert not _node_modules(modules)
    assert not modules & {"sqlalchemy", "alembic", "aiosqlite", "asyncpg"}


@pytest.mark.parametrize("code", [DESCRIPTORS, CONTROL_HALVES, AGENT_HALVES])
def test_no_plane_is_imported_by_a_plugin(code: str) -> None:
    modules = _modules(code)
    for plane in ("control", "agent", "runner", "engine", "cli", "wire", "runs", "graph"):
        assert f"codefyui_core.{plane}" not in modules


def test_the_builtin_nodes_import_no_vendor_library() -> None:
    code = "from codefyui_core.builtin.nodes.catalog import BuiltinCatalog; assert list(BuiltinCatalog().nodes())"
    assert not _modules(code) & {"torch", "numpy", "PIL", "aiohttp", "click"}
