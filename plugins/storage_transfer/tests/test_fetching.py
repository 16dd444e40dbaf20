"""Inputs on their way to a worker."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from transfer_between import ATTEMPT, WORKER

from codefyui_core.plugin import (
    Auth,
    Busy,
    Caller,
    Corrupt,
    Family,
    InputItem,
    Refused,
    Route,
    TransferStopped,
)
from codefyui_core.testing.hosts import ProgressDouble
from codefyui_core.testing.served_routes import HttpDouble, served_routes
from codefyui_storage_transfer.fetching import Begun, Fetching

DATA = bytes(range(256)) * 12_000
ITEM = InputItem(
    sha256=hashlib.sha256(DATA).hexdigest(), size_bytes=len(DATA), family=Family.FILES, name="a/100% é#?.csv"
)


class Store:
    """Serves one file as the control plane would, or in ways that something between might."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked: list[tuple[str, str]] = []
        self.ranges = True
        self.cut_after: int | None = None

    async def send(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        self.asked.append((request.match_info["name"], request.headers.get("Range", "")))
        if self.cut_after is not None:
            return await self._cut(request)
        if not self.ranges:
            return web.Response(body=self.path.read_bytes())
        return web.FileResponse(self.path)

    async def _cut(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(DATA))})
        await response.prepare(request)
        assert self.cut_after is not None
        await response.write(DATA[: self.cut_after])
        assert request.transport is not None
        request.transport.close()
        return response


@pytest.fixture
def store(tmp_path: Path) -> Store:
    path = tmp_path / "served"
    path.write_bytes(DATA)
    return Store(path)


@pytest.fixture
async def downloads(store: Store) -> AsyncIterator[HttpDouble]:
    path = "/api/files/download/{name:.+}"
    routes = [
        Route(method="GET", path=path, handler=store.send, auth=Auth.OPEN),
        Route(
            method="GET", path="/api/runs/{run_id}/inputs/{name}", handler=store.send, auth=Auth.RUN_WORKER
        ),
    ]
    async with served_routes(routes, Caller(worker=WORKER, attempt=ATTEMPT)) as http:
        yield http


@pytest.fixture
def fetch(downloads: HttpDouble, tmp_path: Path) -> Any:
    async def fetch(item: InputItem = ITEM, progress: ProgressDouble | None = None) -> str:
        fetching = Fetching(downloads, ATTEMPT.run_id, item, progress or ProgressDouble())
        return await fetching.into(tmp_path / "into")

    return fetch


async def test_the_name_arrives_as_the_graph_has_it(fetch: Any, store: Store, tmp_path: Path) -> None:
    assert await fetch() == ITEM.sha256
    assert store.asked == [("a/100% é#?.csv", "")]
    assert (tmp_path / "into").read_bytes() == DATA


@pytest.mark.parametrize("begun", [1, 4096, len(DATA) - 1])
async def test_a_fetch_goes_on_where_it_stopped(begun: int, fetch: Any, store: Store, tmp_path: Path) -> None:
    (tmp_path / "into").write_bytes(DATA[:begun])
    progress = ProgressDouble()
    assert await fetch(progress=progress) == ITEM.sha256
    assert store.asked[0][1] == f"bytes={begun}-"
    assert progress.n_bytes == len(DATA) - begun
    assert (tmp_path / "into").read_bytes() == DATA


async def test_a_whole_file_is_not_asked_for_again(fetch: Any, store: Store, tmp_path: Path) -> None:
    (tmp_path / "into").write_bytes(DATA)
    assert await fetch() == ITEM.sha256
    assert store.asked == []


@pytest.mark.parametrize("there", [DATA[:1000], DATA + b"more"])
async def test_a_server_that_ignores_ranges_sends_all_of_it(
    there: bytes, fetch: Any, store: Store, tmp_path: Path
) -> None:
    store.ranges = False
    (tmp_path / "into").write_bytes(there)
    assert await fetch() == ITEM.sha256
    assert (tmp_path / "into").read_bytes() == DATA


@pytest.mark.parametrize("cut_after", [1, 70_000, 1_500_000])
async def test_what_came_before_a_broken_line_stays(
    cut_after: int, fetch: Any, store: Store, tmp_path: Path
) -> None:
    store.cut_after = cut_after
    with pytest.raises(Busy):
        await fetch()
    assert (tmp_path / "into").read_bytes() == DATA[:cut_after]
    store.cut_after = None
    assert await fetch() == ITEM.sha256


async def test_a_file_that_was_changed_meanwhile_is_told_by_its_size(fetch: Any, store: Store) -> None:
    store.path.write_bytes(DATA + b"another line")
    with pytest.raises(Corrupt, match="changed on the server"):
        await fetch()


async def test_a_wrong_byte_shows_in_the_hash(fetch: Any, store: Store) -> None:
    store.path.write_bytes(b"!" + DATA[1:])
    assert await fetch() != ITEM.sha256


async def test_a_file_that_is_gone_is_refused(fetch: Any, store: Store) -> None:
    store.path.unlink()
    with pytest.raises(Refused):
        await fetch()


async def test_a_stop_ends_the_fetch(fetch: Any, tmp_path: Path) -> None:
    with pytest.raises(TransferStopped):
        await fetch(progress=ProgressDouble(stop_after=1 << 20))
    assert (tmp_path / "into").stat().st_size < len(DATA)


async def test_a_disk_that_is_full_is_told_and_leaves_a_beginning_to_go_on_from(
    fetch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(begun: Begun, pieces: Sequence[bytes]) -> None:
        raise Refused("into can't be written: No space left on device", code="storage.full")

    with monkeypatch.context() as patch:
        patch.setattr(Begun, "write", full)
        with pytest.raises(Refused, match="No space left"):
            await fetch()
    left = (tmp_path / "into").read_bytes()
    assert DATA.startswith(left)
    assert await fetch() == ITEM.sha256


async def test_an_empty_file_needs_no_request(fetch: Any, store: Store) -> None:
    empty = InputItem(
        sha256=hashlib.sha256().hexdigest(), size_bytes=0, family=Family.FILES, name="empty.csv"
    )
    assert await fetch(empty) == empty.sha256
    assert store.asked == []


async def test_what_an_earlier_run_left_comes_by_its_hash(fetch: Any, store: Store) -> None:
    item = ITEM.model_copy(update={"place": "runs/r0/checkpoint/a.pt"})
    assert await fetch(item) == ITEM.sha256
    assert store.asked == [(ITEM.sha256, "")]
