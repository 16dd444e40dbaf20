"""Small inputs on their way to a worker: many with one request."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from transfer_between import ATTEMPT, WORKER

from codefyui_core.plugin import (
    Auth,
    Busy,
    Caller,
    CodefyError,
    Corrupt,
    Family,
    InputItem,
    Refused,
    Route,
    Sha256,
    TransferStopped,
)
from codefyui_core.testing.hosts import AgentStoreDouble, ControlStoreDouble, ProgressDouble
from codefyui_core.testing.served_routes import HttpDouble, served_routes
from codefyui_storage_transfer.input_parcel import FILE_BYTES
from codefyui_storage_transfer.models import TransferTicket
from codefyui_storage_transfer.plugin import TransferBackend
from codefyui_storage_transfer.small_inputs import SmallInputs


def item_of(name: str, data: bytes) -> InputItem:
    return InputItem(
        sha256=Sha256(hashlib.sha256(data).hexdigest()),
        size_bytes=len(data),
        family=Family.FILES,
        name=name,
    )


class Line:
    """The plugin's own route, and the requests for it. ``instead`` may answer in its place."""

    def __init__(self, host: ControlStoreDouble, tmp_path: Path) -> None:
        self.host = host
        self.folder = tmp_path / "into"
        self.folder.mkdir()
        self.asked: list[list[str]] = []
        self.instead: Callable[[web.Request], Any] | None = None
        self.small: SmallInputs

    def has(self, *contents: bytes) -> list[InputItem]:
        items = []
        for data in contents:
            item = item_of(f"{len(self.host.uploads)}.csv", data)
            self.host.uploads[Family.FILES, item.name] = data
            path = self.host.folders.of(Family.FILES) / item.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            items.append(item)
        return items

    async def fetch(self, item: InputItem, progress: ProgressDouble | None = None) -> Sha256 | None:
        return await self.small.fetch(item, self.folder / item.name, progress or ProgressDouble())

    async def all(self, *items: InputItem) -> list[Any]:
        return await asyncio.gather(*(self.fetch(item) for item in items), return_exceptions=True)

    def there(self, item: InputItem) -> bytes:
        return (self.folder / item.name).read_bytes()


@pytest.fixture
async def line(control_host: ControlStoreDouble, tmp_path: Path) -> AsyncIterator[Line]:
    made = Line(control_host, tmp_path)
    routes = []
    for route in TransferBackend().control(control_host).routes():
        if not route.path.endswith("inputs/parcel"):
            continue

        async def handler(request: web.Request, caller: Caller, real: Route = route) -> web.StreamResponse:
            made.asked.append((await request.json())["inputs"])
            if made.instead is not None:
                return await made.instead(request)
            return await real.handler(request, caller)

        routes.append(Route(method=route.method, path=route.path, handler=handler, auth=Auth.RUN_WORKER))
    async with served_routes(routes, Caller(worker=WORKER, attempt=ATTEMPT)) as http:
        made.small = SmallInputs(http, ATTEMPT.run_id)
        yield made
        await made.small.aclose()


async def test_many_files_take_few_requests(line: Line) -> None:
    items = line.has(*(os.urandom(size) for size in (1, 100_000, 300_000, 7, FILE_BYTES, 1000) * 5))
    assert await line.all(*items) == [item.sha256 for item in items]
    assert [line.there(item) for item in items] == [
        line.host.uploads[Family.FILES, item.name] for item in items
    ]
    assert len(line.asked) < 6
    assert sorted(sha for one in line.asked for sha in one) == sorted(item.sha256 for item in items)


async def test_large_empty_and_begun_files_go_alone(line: Line) -> None:
    large, empty, begun = line.has(b"x" * (FILE_BYTES + 1), b"", b"begun")
    (line.folder / begun.name).write_bytes(b"be")
    assert await line.all(large, empty, begun) == [None, None, None]
    assert line.asked == []
    assert line.there(begun) == b"be"


async def test_one_content_under_two_names_is_asked_for_once_at_a_time(line: Line) -> None:
    items = line.has(b"first", b"same", b"same", b"other")
    found = await line.all(*items)
    assert all(len(set(one)) == len(one) for one in line.asked)
    assert found[0] == items[0].sha256
    assert found[3] == items[3].sha256
    assert {found[1], found[2]} <= {None, items[1].sha256}


async def test_a_file_that_does_not_come_costs_no_other(line: Line) -> None:
    items = line.has(b"one", b"gone", b"changed", b"two")
    (line.host.folders.of(Family.FILES) / items[1].name).unlink()
    (line.host.folders.of(Family.FILES) / items[2].name).write_bytes(b"another one")
    one, gone, changed, two = await line.all(*items)
    assert (one, two) == (items[0].sha256, items[3].sha256)
    assert isinstance(gone, Refused)
    assert gone.code == "files.not_found"
    assert isinstance(changed, Corrupt)
    assert "11 bytes now, not 7" in changed.message


async def test_a_wrong_byte_shows_in_the_hash(line: Line) -> None:
    (item,) = line.has(b"right")
    (line.host.folders.of(Family.FILES) / item.name).write_bytes(b"wrong")
    assert await line.fetch(item) == hashlib.sha256(b"wrong").hexdigest()


async def test_a_file_that_is_stopped_stops_alone(line: Line) -> None:
    items = line.has(*(os.urandom(300_000) for _ in range(8)))
    progress = [ProgressDouble(stop_after=10 if number == 5 else None) for number in range(8)]
    found = await asyncio.gather(*map(line.fetch, items, progress), return_exceptions=True)
    assert isinstance(found.pop(5), TransferStopped)
    assert found == [item.sha256 for number, item in enumerate(items) if number != 5]
    assert [one.n_bytes for number, one in enumerate(progress) if number != 5] == [300_000] * 7


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="writes to a disk that is full")
async def test_a_file_that_cannot_be_written_costs_no_other(line: Line) -> None:
    items = line.has(b"one", b"two", b"three")
    (line.folder / items[0].name).symlink_to("/dev/full")
    (line.folder / items[1].name).symlink_to(line.folder / "absent" / "file")
    full, absent, three = await line.all(*items)
    assert isinstance(full, Refused)
    assert full.code == "storage.full"
    assert "can't be written: No space left" in full.message
    assert isinstance(absent, FileNotFoundError)
    assert three == items[2].sha256


async def test_what_came_whole_before_a_broken_line_is_done(line: Line) -> None:
    items = line.has(*(os.urandom(100_000) for _ in range(6)))
    line.instead = lambda request: breaks_after(request, line, 250_000)
    found = await line.all(*items)  # one goes at once, then the other five
    assert found[:3] == [item.sha256 for item in items[:3]]
    assert all(isinstance(one, Busy) for one in found[3:])
    begun = line.there(items[3])
    assert 0 < len(begun) < 100_000
    assert line.host.uploads[Family.FILES, items[3].name].startswith(begun)
    line.instead = None
    assert await line.all(*items[3:]) == [None, items[4].sha256, items[5].sha256]


async def breaks_after(request: web.Request, line: Line, n_bytes: int) -> web.StreamResponse:
    """As the route answers, but for the end."""
    asked = line.asked[-1]
    data = [
        one for sha in asked for one in line.host.uploads.values() if hashlib.sha256(one).hexdigest() == sha
    ]
    listed = ",".join(f'{{"sha256":"{sha}","size":{len(one)}}}' for sha, one in zip(asked, data, strict=True))
    whole = f'{{"files":[{listed}]}}\n'.encode() + b"".join(data)
    response = web.StreamResponse(headers={"Content-Length": str(len(whole))})
    await response.prepare(request)
    head = len(whole) - sum(map(len, data))
    if sum(map(len, data)) <= n_bytes:
        await response.write(whole)
        return response
    await response.write(whole[: head + n_bytes])
    assert request.transport is not None
    request.transport.close()
    return response


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\n",
        b"nonsense\n",
        b'{"files":[]}\n',
        b'{"files":[{"sha256":"' + b"0" * 64 + b'","size":3}]}\n???',
        b'{"files":[{"sha256":"SHA","size":4}]}\nfour',
        b'{"files":[{"sha256":"SHA","size":-1}]}\n',
        b'{"files":[{"sha256":"SHA","size":3}]}',
        b'{"files":[{"sha256":"SHA","size":3}]}\non',
        b"x" * 3_000_000,
    ],
)
async def test_an_answer_that_was_damaged_is_asked_for_again(line: Line, answer: bytes) -> None:
    (item,) = line.has(b"one")

    async def damaged(request: web.Request) -> web.Response:
        return web.Response(body=answer.replace(b"SHA", item.sha256.encode()))

    line.instead = damaged
    with pytest.raises(Busy):
        await line.fetch(item)
    line.instead = None
    assert await line.fetch(item) in {item.sha256, None}


async def test_a_refused_request_is_every_files_refusal(line: Line) -> None:
    async def over(request: web.Request) -> web.Response:
        raise CodefyError("Attempt 1 is over.", code="run.attempt_over")

    line.instead = over
    found = await line.all(*line.has(b"one", b"two", b"three"))
    assert [one.code for one in found] == ["run.attempt_over"] * 3


async def test_who_leaves_costs_no_other(line: Line) -> None:
    items = line.has(*(os.urandom(50_000) for _ in range(10)))
    tasks = [asyncio.create_task(line.fetch(item)) for item in items]
    assert await tasks[0] == items[0].sha256
    tasks[4].cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(found.pop(4), asyncio.CancelledError)
    assert found == [item.sha256 for number, item in enumerate(items) if number != 4]


async def test_the_session_asks_for_what_goes_alone_by_itself(
    http: HttpDouble, control_host: ControlStoreDouble, agent_host: AgentStoreDouble, tmp_path: Path
) -> None:
    begun = item_of("0.csv", b"begun")
    path = tmp_path / "0.csv"
    path.write_bytes(b"begun")
    half = TransferBackend().agent(agent_host)
    ticket = TransferTicket(max_upload_bytes=1, chunk_bytes=1 << 20)
    async with half.open(ATTEMPT, ticket, None) as session:
        assert await session.fetch(begun, path, ProgressDouble()) == begun.sha256
