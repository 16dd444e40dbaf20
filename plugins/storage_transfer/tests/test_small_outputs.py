"""Small outputs on their way together."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from transfer_between import ATTEMPT, Between

from codefyui_core.plugin import (
    Busy,
    CodefyError,
    Corrupt,
    Output,
    Progress,
    Receipt,
    Refused,
    TransferStopped,
)
from codefyui_core.testing.hosts import AgentStoreDouble, ControlStoreDouble, NotesDouble, ProgressDouble
from codefyui_core.testing.served_routes import HttpDouble
from codefyui_storage_transfer.agent import TransferSession
from codefyui_storage_transfer.models import PARCEL_PATH, TransferTicket
from codefyui_storage_transfer.plugin import TransferBackend

KIB, MIB = 1 << 10, 1 << 20
PATH = PARCEL_PATH.format(run_id=ATTEMPT.run_id)


class Line:
    """A session, the files that it sends, and what was asked of the control plane."""

    def __init__(self, session: TransferSession, between: Between, host: ControlStoreDouble, folder: Path):
        self.session = session
        self.between = between
        self.host = host
        self.folder = folder

    def write(self, name: str, data: bytes) -> Output:
        (self.folder / name).write_bytes(data)
        return Output(
            key=name, kind="checkpoint", name=name, relative_path=f"models/{name}", size_bytes=len(data)
        )

    async def send(self, output: Output, progress: Progress | None = None) -> Receipt:
        path = self.folder / output.name
        return await self.session.publish(output, path, NotesDouble(), progress or ProgressDouble())

    async def all(self, outputs: list[Output], **progress: Progress) -> list[Any]:
        sent = (self.send(one, progress.get(one.name)) for one in outputs)
        return list(await asyncio.gather(*sent, return_exceptions=True))

    def arrived(self) -> dict[str, bytes]:
        own = self.host.run_files / ATTEMPT.run_id / "checkpoint"
        return {path.name: path.read_bytes() for path in own.iterdir()} if own.exists() else {}

    @property
    def n_parcels(self) -> int:
        return sum(set(params) == {"sha256"} for method, params in self.between.asked)


@pytest.fixture
async def line(
    http: HttpDouble, agent_host: AgentStoreDouble, control_host: ControlStoreDouble, tmp_path: Path
) -> AsyncIterator[Line]:
    between = Between(http)
    agent_host.connection = between
    ticket = TransferTicket(max_upload_bytes=2 * MIB, chunk_bytes=2 * MIB)
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(
            TransferBackend().agent(agent_host).open(ATTEMPT, ticket, None)
        )
        folder = tmp_path / "outbox"
        folder.mkdir()
        yield Line(session, between, control_host, folder)


async def test_small_files_that_wait_go_together(line: Line) -> None:
    contents = {f"{n}.pt": os.urandom(n * 10) for n in range(100)}
    progress = {name: ProgressDouble() for name in contents}
    outputs = [line.write(name, data) for name, data in contents.items()]
    receipts = await line.all(outputs, **progress)
    assert [one.sha256 for one in receipts] == [
        hashlib.sha256(data).hexdigest() for data in contents.values()
    ]
    assert line.arrived() == contents
    assert line.n_parcels == 2
    assert {name: one.n_bytes for name, one in progress.items()} == {
        name: len(data) for name, data in contents.items()
    }


async def test_a_load_has_no_more_bytes_than_a_piece(line: Line) -> None:
    contents = {f"{n}.pt": os.urandom(900 * KIB) for n in range(7)}
    await line.all([line.write(name, data) for name, data in contents.items()])
    assert line.arrived() == contents
    assert line.n_parcels == 4


async def test_a_file_that_can_not_be_sent_fails_alone(line: Line) -> None:
    good = [line.write(f"{n}.pt", b"good") for n in range(3)]
    gone = Output(key="gone", kind="checkpoint", name="gone", relative_path="models/gone", size_bytes=1)
    bad = line.write("con.pt", b"a name that no server takes")
    await line.all([line.write("first", b"")])
    found = await line.all([good[0], gone, good[1], bad, good[2]])
    assert [type(one) for one in found] == [Receipt, Refused, Receipt, Refused, Receipt]
    assert "can't be read" in found[1].message
    assert found[3].code == "files.bad_name"


async def test_a_file_that_is_stopped_stops_alone(line: Line) -> None:
    outputs = [line.write(f"{n}.pt", os.urandom(300 * KIB)) for n in range(5)]
    found = await line.all(outputs, **{"3.pt": ProgressDouble(stop_after=10)})
    assert [type(one) for one in found] == [Receipt] * 3 + [TransferStopped, Receipt]


async def test_a_stop_of_all_ends_the_request(line: Line) -> None:
    outputs = [line.write(f"{n}.pt", os.urandom(300 * KIB)) for n in range(5)]
    stopped: Any = {one.name: ProgressDouble(stop_after=10) for one in outputs}
    found = await line.all(outputs, **stopped)
    assert {type(one) for one in found} == {TransferStopped}


async def test_a_lost_answer_costs_all_in_it_a_try_and_changes_nothing(line: Line) -> None:
    contents = {f"{n}.pt": os.urandom(1000) for n in range(10)}
    outputs = [line.write(name, data) for name, data in contents.items()]
    line.between.lose_answers = 2
    assert {type(one) for one in await line.all(outputs)} == {Busy}
    receipts = await line.all(outputs)
    assert await line.all(outputs) == receipts
    assert line.arrived() == contents


@pytest.mark.parametrize("at", [0, 20, 60, -1])
async def test_a_first_line_that_is_damaged_on_its_way_is_sent_again(at: int, line: Line) -> None:
    request, damaged = line.between.request, []

    @asynccontextmanager
    async def damaging(*words: Any, data: AsyncIterator[bytes], **more: Any) -> AsyncIterator[Any]:
        body = bytearray(b"".join([piece async for piece in data]))
        if not damaged:
            damaged.append(at)
            body[at if at >= 0 else body.index(b"\n")] ^= 1
        async with request(*words, data=bytes(body), **more) as response:
            yield response

    line.between.request = damaging
    output = line.write("a.pt", b"data")
    with pytest.raises(Corrupt):
        await line.send(output)
    assert line.arrived() == {}
    assert (await line.send(output)).size_bytes == 4
    assert line.arrived() == {"a.pt": b"data"}


@pytest.mark.parametrize("body_limit", [1_000_000, 600_000])
async def test_a_proxy_that_takes_less_gets_less_at_once(body_limit: int, line: Line) -> None:
    contents = {f"{n}.pt": os.urandom(100 * KIB) for n in range(30)} | {"large.pt": os.urandom(MIB)}
    line.between.body_limit = body_limit
    found = await line.all([line.write(name, data) for name, data in contents.items()])
    assert {type(one) for one in found} == {Receipt}
    assert line.arrived() == contents


async def test_a_proxy_that_takes_hardly_anything_is_named(line: Line) -> None:
    line.between.body_limit = 1000
    found = await line.all([line.write(f"{n}.pt", os.urandom(2000)) for n in range(3)])
    assert {type(one) for one in found} == {Refused}
    assert all("client_max_body_size" in one.message for one in found)


async def test_a_file_over_the_servers_limit_is_not_begun(
    agent_host: AgentStoreDouble, line: Line, tmp_path: Path
) -> None:
    output = line.write("a.pt", bytes(2000))
    ticket = TransferTicket(max_upload_bytes=1999, chunk_bytes=2 * MIB)
    async with TransferBackend().agent(agent_host).open(ATTEMPT, ticket, None) as session:
        with pytest.raises(Refused, match="CODEFYUI_MAX_UPLOAD_SIZE"):
            await session.publish(output, line.folder / "a.pt", NotesDouble(), ProgressDouble())
    assert line.between.asked == []


async def test_a_file_that_has_grown_meanwhile_goes_in_pieces(line: Line) -> None:
    output = line.write("a.pt", b"small")
    data = os.urandom(MIB + 1)
    (line.folder / "a.pt").write_bytes(data)
    assert (await line.send(output)).size_bytes == len(data)
    assert line.arrived() == {"a.pt": data}
    assert line.n_parcels == 0


async def test_names_that_fill_the_first_line_go_with_several(line: Line) -> None:
    outputs = []
    for number in range(200):
        one = line.write(f"{number}", b"x")
        long = "/".join(["x" * 200] * 4) + f"/{number}"
        outputs.append(one.model_copy(update={"relative_path": f"models/{long}", "key": f"{number}" * 20}))
    found = await line.all(outputs)
    assert {type(one) for one in found} == {Receipt}
    assert line.n_parcels == 3


@pytest.mark.parametrize(
    ("code", "kind"), [("storage.full", Busy), ("upload.mismatch", Corrupt), ("storage.refused", Refused)]
)
async def test_what_the_server_says_of_a_file_decides_what_becomes_of_it(
    code: str, kind: type[CodefyError], line: Line
) -> None:
    take = line.host.arrivals.take

    async def fails(*words: Any) -> Any:
        return [CodefyError("it says so", code=code), *(await take(*words))[1:]]

    line.host.arrivals.take = fails  # type: ignore[method-assign]
    first, _, other = await line.all([line.write(name, b"data") for name in ("one", "two", "three")])
    assert (type(first), first.message, first.code) == (kind, "it says so", code)
    assert isinstance(other, Receipt)


ANSWERS = [
    b"",
    b"{}",
    b'{"files": []}',
    b'{"files": [{"offset": "x"}]}',
    b'{"files": [{"code": "a"}]}',
    b"\xff",
]


@pytest.mark.parametrize("answer", ANSWERS)
async def test_an_answer_that_was_damaged_on_its_way_is_asked_for_again(answer: bytes, line: Line) -> None:
    request = line.between.request

    @asynccontextmanager
    async def damaging(*words: Any, **more: Any) -> AsyncIterator[Any]:
        async with request(*words, **more) as response:
            await response.read()
            response._body = answer
            yield response

    line.between.request = damaging
    output = line.write("a.pt", b"data")
    with pytest.raises(Busy):
        await line.send(output)
    line.between.request = request
    assert (await line.send(output)).size_bytes == 4


async def test_a_session_that_ends_ends_what_is_under_way(agent_host: AgentStoreDouble, line: Line) -> None:
    asked = asyncio.Event()

    @asynccontextmanager
    async def never(*words: Any, **more: Any) -> AsyncIterator[Any]:
        asked.set()
        await asyncio.Event().wait()
        yield

    line.between.request = never
    sending = asyncio.create_task(line.send(line.write("a.pt", b"data")))
    await asked.wait()
    await line.session.aclose()
    with pytest.raises(asyncio.CancelledError):
        await sending


async def test_few_large_files_go_at_once_however_many_are_given(line: Line) -> None:
    contents = {f"{n}.pt": os.urandom(MIB + n + 1) for n in range(9)}
    under_way = most = 0
    request = line.between.request

    @asynccontextmanager
    async def counting(*words: Any, **more: Any) -> AsyncIterator[Any]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            async with request(*words, **more) as response:
                yield response
        finally:
            under_way -= 1

    line.between.request = counting
    await line.all([line.write(name, data) for name, data in contents.items()])
    assert most == 4
    assert line.arrived() == contents
