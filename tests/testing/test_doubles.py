"""Doubles work, or fail, in the way that their names say."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from codefyui_core.errors import Busy, Expired, LinkProblem, Refused
from codefyui_core.plugin import (
    AnyBackend,
    Assignment,
    AttemptView,
    Auth,
    Caller,
    CatalogProblem,
    Connector,
    Family,
    InputItem,
    Route,
    RunId,
    RunStatus,
    RunView,
    StorageControl,
    Target,
    WorkerId,
    WorkerView,
    sha256_of,
)
from codefyui_core.testing.doubles import (
    BusyBackend,
    CorruptBackend,
    CrashingBackend,
    CrashingCatalog,
    CrashingConnector,
    ExpiringBackend,
    FailingConnector,
    FolderBackend,
    HalfCatalog,
    NeverAnswersConnector,
    RefusingBackend,
    SlowBackend,
    Step,
)
from codefyui_core.testing.hosts import (
    AgentDouble,
    AgentStoreDouble,
    ControlLinkDouble,
    ControlStoreDouble,
    ProgressDouble,
)
from codefyui_core.testing.served_routes import HttpDouble, served_routes
from codefyui_core.testing.suites import StorageSuite

WORKER = WorkerView(id=WorkerId("2"), name="gpu", connected=True)
RUN = RunView(id=RunId("1"), name="train", status=RunStatus.QUEUED, worker_id=WORKER.id)
ATTEMPT = AttemptView(run_id=RUN.id, number=1, worker_id=WORKER.id)


class TestFolderBackendHoldsToTheContract(StorageSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> AnyBackend:
        return FolderBackend(tmp_path / "spool")


@pytest.fixture
def host(tmp_path: Path) -> ControlStoreDouble:
    return ControlStoreDouble(root=tmp_path / "control", uploads={(Family.FILES, "a"): b"data"})


async def _stage(
    backend: FolderBackend, host: ControlStoreDouble
) -> tuple[StorageControl[Any, Any, Any, Any], Any]:
    control = backend.control(host)
    return control, await control.stage(RUN, WORKER, ATTEMPT)


async def _fetch(backend: FolderBackend, host: ControlStoreDouble, item: InputItem) -> Path:
    agent = backend.agent(AgentStoreDouble(root=host.root / "agent"))
    into = host.root / "fetched"
    async with agent.open(ATTEMPT, (await _stage(backend, host))[1].ticket, None) as session:
        await session.fetch(item, into, ProgressDouble())
    return into


async def test_a_busy_backend_works_in_the_end(tmp_path: Path, host: ControlStoreDouble) -> None:
    backend = BusyBackend(tmp_path / "spool", times=2)
    for _ in range(2):
        with pytest.raises(Busy):
            await _stage(backend, host)
    await _stage(backend, host)
    assert backend.steps == [Step.STAGE] * 3


async def test_a_refusing_backend_refuses_for_good(tmp_path: Path, host: ControlStoreDouble) -> None:
    with pytest.raises(Refused, match="stage"):
        await _stage(RefusingBackend(tmp_path / "spool"), host)


async def test_a_crashing_backend_raises_what_no_plugin_should(
    tmp_path: Path, host: ControlStoreDouble
) -> None:
    with pytest.raises(RuntimeError):
        await _stage(CrashingBackend(tmp_path / "spool"), host)


async def test_a_slow_backend_waits_for_its_release(tmp_path: Path, host: ControlStoreDouble) -> None:
    backend = SlowBackend(tmp_path / "spool", held=[Step.STAGE])
    task = asyncio.create_task(_stage(backend, host))
    await asyncio.wait_for(backend.waiting.wait(), 10)
    assert not task.done()
    backend.release()
    await asyncio.wait_for(task, 10)


async def test_an_expiring_backend_serves_one_transfer_a_grant(
    tmp_path: Path, host: ControlStoreDouble
) -> None:
    backend = ExpiringBackend(tmp_path / "spool")
    control, staged = await _stage(backend, host)
    await backend.take(Step.FETCH)
    with pytest.raises(Expired):
        await backend.take(Step.FETCH)
    assert await control.renew(Assignment(run=RUN, attempt=ATTEMPT, ticket=staged.ticket)) is not None
    await backend.take(Step.FETCH)
    assert backend.granted == 2


async def test_a_corrupt_backend_changes_the_first_input(tmp_path: Path, host: ControlStoreDouble) -> None:
    (item,) = await host.inputs(RUN)
    backend = CorruptBackend(tmp_path / "spool", times=1)
    assert sha256_of(await _fetch(backend, host, item)) != item.sha256
    assert sha256_of(await _fetch(backend, host, item)) == item.sha256


async def test_a_connector_that_never_answers_can_be_given_up(tmp_path: Path) -> None:
    connector = NeverAnswersConnector()
    agent = connector.agent(AgentDouble(root=tmp_path))
    task = asyncio.create_task(agent.dial(_target(tmp_path)).__aenter__())
    await asyncio.wait_for(connector.waiting.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    invited = asyncio.create_task(connector.control(ControlLinkDouble(root=tmp_path)).invite("http://x"))
    invited.cancel()
    with pytest.raises(asyncio.CancelledError):
        await invited


def _target(folder: Path) -> Target:
    return Target(url="http://cp", options={}, kept={}, credential_file=folder / "t")


@pytest.mark.parametrize(
    ("connector", "error"),
    [
        (FailingConnector(LinkProblem("wrong pin", exit_code=2)), LinkProblem),
        (CrashingConnector(), RuntimeError),
    ],
)
def test_failing_connectors_raise_when_they_dial(
    connector: Connector, error: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(error):
        connector.agent(AgentDouble(root=tmp_path)).dial(_target(tmp_path))


def test_catalogs_fail_as_they_are_called() -> None:
    assert [isinstance(one, CatalogProblem) for one in HalfCatalog().nodes()] == [False, True]
    with pytest.raises(RuntimeError):
        list(CrashingCatalog().nodes())


def test_an_ending_catalog_ends_its_process() -> None:
    code = "from codefyui_core.testing.doubles import EndingCatalog; list(EndingCatalog().nodes())"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 3


# ---------------------------------------------------------------- routes over real HTTP


def _routes() -> list[Route]:
    async def store(request: web.Request, caller: Caller) -> web.Response:
        assert caller.worker is not None
        body = await request.read()
        return web.json_response({"worker": caller.worker.name, "bytes": len(body)})

    async def refuse(request: web.Request, caller: Caller) -> web.Response:
        raise Refused("too large", code="storage.full" if "full" in request.query else "upload.exists")

    async def proxy(request: web.Request, caller: Caller) -> web.Response:
        return web.Response(status=413, text="<html>")

    return [
        Route(
            method="PUT",
            path="/api/runs/{run_id}/f",
            handler=store,
            auth=Auth.RUN_WORKER,
            body_limit_bytes=1 << 22,
        ),
        Route(method="POST", path="/api/refuse", handler=refuse, auth=Auth.WORKER),
        Route(method="POST", path="/api/proxy", handler=proxy, auth=Auth.WORKER),
    ]


@pytest.fixture
async def http() -> AsyncIterator[HttpDouble]:
    async with served_routes(_routes(), Caller(worker=WORKER)) as connection:
        yield connection


async def test_routes_are_served_with_their_caller_and_limit(http: HttpDouble) -> None:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(32):
            yield b"x" * (1 << 16)

    async with http.request("PUT", "/api/runs/1/f", data=body()) as answer:
        assert await answer.json() == {"worker": "gpu", "bytes": 1 << 21}


@pytest.mark.parametrize(
    ("path", "code"),
    [("/api/refuse", "upload.exists"), ("/api/proxy", "proxy.413"), ("/api/absent", "proxy.404")],
)
async def test_refusals_carry_the_servers_code_or_say_that_it_was_a_proxy(
    http: HttpDouble, path: str, code: str
) -> None:
    with pytest.raises(Refused) as caught:
        async with http.request("POST", path):
            pytest.fail("answered well")
    assert caught.value.code == code


async def test_a_server_that_is_gone_is_busy() -> None:
    async with served_routes(_routes(), Caller()) as running:
        base = running._session._base_url
    async with aiohttp.ClientSession(base) as session:
        with pytest.raises(Busy):
            async with HttpDouble(session).request("POST", "/api/refuse"):
                pytest.fail("answered")
