"""The transfer backend holds to the contract of storage backends."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from codefyui_core.plugin import AnyBackend, AttemptView, Auth, Caller, Family, Route, WorkerView
from codefyui_core.testing.hosts import AgentStoreDouble, ControlStoreDouble
from codefyui_core.testing.served_routes import served_routes
from codefyui_core.testing.suites import StorageSuite
from codefyui_core.testing.suites.storage import AnyControl
from codefyui_storage_transfer.plugin import TransferBackend


def downloads(host: ControlStoreDouble) -> list[Route]:
    """The core's routes for uploads, as far as a backend sees of them."""

    def route(family: Family) -> Route:
        async def send(request: web.Request, caller: Caller) -> web.StreamResponse:
            return web.FileResponse(host.folders.of(family) / request.match_info["name"])

        path = f"/api/{family.value}/download/{{name:.+}}"
        return Route(method="GET", path=path, handler=send, auth=Auth.OPEN, on_links=True)

    return [route(family) for family in (Family.FILES, Family.IMAGES, Family.MODELS)]


class TestTransferHoldsToTheContract(StorageSuite):
    @pytest.fixture
    def backend(self) -> AnyBackend:
        return TransferBackend()

    @pytest.fixture
    def uploads(self) -> dict[tuple[Family, str], bytes]:
        return {
            (Family.IMAGES, "cats/one.png"): b"\x89PNG" * 3000,
            (Family.FILES, "50% of é #1?;.csv"): b"a,b\n" * 900_000,
            (Family.MODELS, "empty.pt"): b"",
        }

    @pytest.fixture
    async def agent_host(
        self,
        control: AnyControl,
        control_host: ControlStoreDouble,
        worker: WorkerView,
        attempt: AttemptView,
        tmp_path: Path,
    ) -> AsyncIterator[AgentStoreDouble]:
        routes = [*control.routes(), *downloads(control_host)]
        async with served_routes(routes, Caller(worker=worker, attempt=attempt)) as connection:
            host = AgentStoreDouble(root=tmp_path / "agent", name="transfer", connection=connection)
            yield host
            await host.aclose()
