"""A server's data folder, and the path by which a worker has it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from codefyui_core.plugin import AttemptView, Family, Folders, RunId, RunStatus, RunView, WorkerId, WorkerView
from codefyui_core.testing.hosts import AgentStoreDouble, ControlStoreDouble


@pytest.fixture
def host(tmp_path: Path) -> ControlStoreDouble:
    """The server shares ``a``'s data folder."""
    made = ControlStoreDouble(root=tmp_path / "a", name="mount")
    for family in Family:
        made.folders.of(family).mkdir(parents=True)
    return made


@pytest.fixture
def share(host: ControlStoreDouble, tmp_path: Path) -> Path:
    """The same folder, as the worker has mounted it."""
    path = tmp_path / "b"
    path.symlink_to(host.folders.root)
    return path


@pytest.fixture
def agent_host(share: Path, tmp_path: Path) -> AgentStoreDouble:
    return AgentStoreDouble(root=tmp_path / "worker", name="mount", saved={"mounts": {"data": str(share)}})


@pytest.fixture
def worker() -> WorkerView:
    return WorkerView(id=WorkerId("3"), name="gpu-box-1", connected=True)


@pytest.fixture
def run(worker: WorkerView) -> RunView:
    return RunView(id=RunId("1"), name="train", status=RunStatus.RUNNING, worker_id=worker.id)


@pytest.fixture
def attempt(run: RunView, worker: WorkerView) -> AttemptView:
    return AttemptView(run_id=run.id, number=1, worker_id=worker.id)


@pytest.fixture
def elsewhere(host: ControlStoreDouble) -> Callable[..., ControlStoreDouble]:
    """The same server with some families outside of its data folder."""

    class Moved(ControlStoreDouble):
        away: tuple[Family, ...] = ()

        @property
        def folders(self) -> Folders:
            places = tuple((family, self.root / "elsewhere" / family.value) for family in self.away)
            return Folders(root=self.root / "data", moved=places)

    def moved(*families: Family) -> ControlStoreDouble:
        made = Moved(root=host.root, name="mount")
        made.away = families
        return made

    return moved
