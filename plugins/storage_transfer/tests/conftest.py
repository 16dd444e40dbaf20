"""The transfer backend between two doubles of its planes, over real HTTP."""

import importlib.util
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import pytest

from codefyui_core.plugin import Caller
from codefyui_core.testing.hosts import AgentStoreDouble, ControlStoreDouble
from codefyui_core.testing.served_routes import HttpDouble, served_routes
from codefyui_storage_transfer.control import TransferControl
from codefyui_storage_transfer.plugin import TransferBackend


def _module(name: str, file: str) -> ModuleType:
    """Test folders aren't packages: the shared module is loaded by its file."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(file))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


between_module = _module("transfer_between", "between.py")
ATTEMPT, WORKER = between_module.ATTEMPT, between_module.WORKER


@pytest.fixture
def control_host(tmp_path: Path) -> ControlStoreDouble:
    host = ControlStoreDouble(root=tmp_path / "control", name="transfer")
    host.attempts[ATTEMPT.run_id] = ATTEMPT
    host.folders.root.mkdir(parents=True)
    return host


@pytest.fixture
def control(control_host: ControlStoreDouble) -> TransferControl:
    return TransferBackend().control(control_host)


@pytest.fixture
async def http(control: TransferControl) -> AsyncIterator[HttpDouble]:
    async with served_routes(control.routes(), Caller(worker=WORKER, attempt=ATTEMPT)) as connection:
        yield connection


@pytest.fixture
async def agent_host(http: HttpDouble, tmp_path: Path) -> AsyncIterator[AgentStoreDouble]:
    host = AgentStoreDouble(root=tmp_path / "agent", name="transfer", connection=http)
    yield host
    await host.aclose()
