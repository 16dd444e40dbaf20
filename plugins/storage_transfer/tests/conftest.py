"""The transfer backend between two doubles of its planes, over real HTTP."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codefyui_core.plugin import AttemptView, Caller, RunId, WorkerId, WorkerView
from codefyui_core.testing.hosts import AgentStoreDouble, ControlStoreDouble
from codefyui_core.testing.served_routes import HttpDouble, served_routes
from codefyui_storage_transfer.control import TransferControl
from codefyui_storage_transfer.plugin import TransferBackend

WORKER = WorkerView(id=WorkerId("0" * 31 + "2"), name="gpu", connected=True)
ATTEMPT = AttemptView(run_id=RunId("0" * 31 + "1"), number=1, worker_id=WORKER.id)


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
