"""The mount backend holds to what every storage backend promises."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from codefyui_core.ids import WorkerId
from codefyui_core.plugin import AnyBackend, StorageControl, WorkerView
from codefyui_core.testing.hosts import AgentStoreDouble, ControlStoreDouble
from codefyui_core.testing.suites import StorageSuite
from codefyui_storage_mount.backend import MountBackend


class TestMountHoldsToTheContract(StorageSuite):
    @pytest.fixture
    def backend(self) -> AnyBackend:
        return MountBackend()

    @pytest.fixture
    def worker(self) -> WorkerView:
        return WorkerView(id=WorkerId("0" * 31 + "2"), name="gpu", connected=True)

    @pytest.fixture
    async def agent_host(
        self,
        backend: AnyBackend,
        control: StorageControl[Any, Any, Any, Any],
        control_host: ControlStoreDouble,
        tmp_path: Path,
    ) -> AsyncIterator[AgentStoreDouble]:
        share = tmp_path / "mounted"
        share.symlink_to(control_host.folders.root)
        host = AgentStoreDouble(
            root=tmp_path / "agent", name=backend.name, saved={"mounts": {"data": str(share)}}
        )
        yield host
        await host.aclose()
