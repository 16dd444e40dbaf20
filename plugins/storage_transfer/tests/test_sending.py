"""Outputs on their way: in pieces, on from where they broke off, through proxies with limits of their own."""

import hashlib
import itertools
import math
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from transfer_between import ATTEMPT, Between

from codefyui_core.plugin import Busy, CodefyError, Corrupt, Output, Receipt, Refused, TransferStopped
from codefyui_core.testing.hosts import AgentStoreDouble, ControlStoreDouble, NotesDouble, ProgressDouble
from codefyui_core.testing.served_routes import HttpDouble
from codefyui_storage_transfer.models import TransferTicket
from codefyui_storage_transfer.plugin import TransferBackend
from codefyui_storage_transfer.sending import Pieces

KIB, MIB = 1 << 10, 1 << 20
DATA = os.urandom(64) * (5 * MIB // 64) + b"the end"


@pytest.fixture
def between(http: HttpDouble, agent_host: AgentStoreDouble) -> Between:
    made = Between(http)
    agent_host.connection = made
    return made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "epoch-1.pt"
    path.write_bytes(DATA)
    return path


def output(name: str = "deep/epoch-1.pt", kind: str = "checkpoint", path: str = "models/x.pt") -> Output:
    return Output(key="k1", kind=kind, name=name, relative_path=path)


@pytest.fixture
def publish(agent_host: AgentStoreDouble, control: Any) -> Any:
    async def publish(
        path: Path, out: Output | None = None, *, progress: ProgressDouble | None = None, **ticket: int
    ) -> Receipt:
        limits = {"max_upload_bytes": 1 << 30, "chunk_bytes": 2 * MIB} | ticket
        agent = TransferBackend().agent(agent_host)
        async with agent.open(ATTEMPT, TransferTicket(**limits), None) as session:
            return await session.publish(out or output(), path, NotesDouble(), progress or ProgressDouble())

    return publish


def arrived(host: ControlStoreDouble, name: str = "checkpoint/deep/epoch-1.pt") -> bytes:
    return (host.run_files / ("0" * 31 + "1") / name).read_bytes()


async def test_a_large_file_goes_in_pieces_of_checked_blocks_and_is_hashed_where_it_arrives(
    publish: Any, source: Path, between: Between, control_host: ControlStoreDouble
) -> None:
    progress = ProgressDouble()
    receipt = await publish(source, progress=progress)
    assert (receipt.sha256, receipt.size_bytes) == (hashlib.sha256(DATA).hexdigest(), len(DATA))
    assert arrived(control_host) == DATA
    assert [int(params["offset"]) for params in between.posts()] == [0, 2 * MIB - 8]
    assert {params.get("sha256") for params in between.posts()} == {None}
    assert progress.n_bytes == len(DATA)


async def test_a_damaged_block_is_all_that_goes_again(
    publish: Any, source: Path, between: Between, control_host: ControlStoreDouble
) -> None:
    between.damage = [(1, MIB // 2), (3, MIB + 100), (3, MIB + 101)]
    receipt = await publish(source)
    assert arrived(control_host) == DATA
    assert receipt.sha256 == hashlib.sha256(DATA).hexdigest()
    again = [int(params["offset"]) for params in between.posts()]
    assert again == [0, 0, 2 * MIB - 8, 3 * MIB - 8]
    assert {params.get("sha256") for params in between.posts()} == {None}


async def test_a_line_that_damages_everything_is_given_up_on(
    publish: Any, source: Path, between: Between
) -> None:
    between.damage = [(number, 0) for number in range(1, 10)]
    with pytest.raises(Corrupt, match="damaged on its way"):
        await publish(source)
    assert len(between.posts()) == 4


async def test_a_file_that_changed_between_two_tries_is_begun_again(
    publish: Any, source: Path, between: Between, control_host: ControlStoreDouble
) -> None:
    between.break_after = 3 * MIB
    with pytest.raises(Busy):
        await publish(source)
    changed = DATA[::-1]
    source.write_bytes(changed)
    with pytest.raises(Corrupt):
        await publish(source)
    receipt = await publish(source)
    assert arrived(control_host) == changed
    assert receipt.sha256 == hashlib.sha256(changed).hexdigest()


async def test_a_server_that_did_not_see_the_beginning_gets_the_hash(
    publish: Any, source: Path, between: Between, control_host: ControlStoreDouble
) -> None:
    control_host.arrivals.is_another_process = True
    receipt = await publish(source)
    assert arrived(control_host) == DATA
    assert between.posts()[-1]["sha256"] == receipt.sha256 == hashlib.sha256(DATA).hexdigest()
    assert between.n_sent < len(DATA) + KIB


@pytest.mark.parametrize("size", [0, 1, MIB])
async def test_a_small_file_takes_one_request(
    size: int, publish: Any, tmp_path: Path, between: Between, control_host: ControlStoreDouble
) -> None:
    path = tmp_path / "small"
    path.write_bytes(DATA[:size])
    assert (await publish(path)).size_bytes == size
    assert arrived(control_host) == DATA[:size]
    assert len(between.asked) == 1


@pytest.mark.parametrize("sent", [0, 1, 2 * MIB - 1, 2 * MIB, 3 * MIB + 17, 5 * MIB])
async def test_a_broken_line_costs_no_more_than_what_was_on_it(
    sent: int, publish: Any, source: Path, between: Between, control_host: ControlStoreDouble
) -> None:
    between.break_after = sent
    with pytest.raises(Busy):
        await publish(source)
    receipt = await publish(source)  # a session of its own, as after a restart of the agent
    assert receipt.sha256 == hashlib.sha256(DATA).hexdigest()
    assert arrived(control_host) == DATA
    assert between.n_sent < len(DATA) + MIB


@pytest.mark.parametrize("lost", [1, 2, 3, 4])
async def test_a_lost_answer_sends_nothing_twice(
    lost: int, publish: Any, source: Path, between: Between, control_host: ControlStoreDouble
) -> None:
    for _ in range(lost):
        between.lose_answers = 1
        with pytest.raises(Busy):
            await publish(source)
    await publish(source)
    assert arrived(control_host) == DATA
    assert between.n_sent < len(DATA) + KIB


async def test_a_small_file_whose_answer_was_lost_is_the_same_file(
    publish: Any, tmp_path: Path, between: Between, control_host: ControlStoreDouble
) -> None:
    path = tmp_path / "small"
    path.write_bytes(b"small")
    between.lose_answers = 1
    with pytest.raises(Busy):
        await publish(path)
    await publish(path)
    assert arrived(control_host) == b"small"


async def test_a_proxy_with_a_limit_of_1_mb_is_passed_with_smaller_pieces(
    publish: Any, source: Path, between: Between, control_host: ControlStoreDouble
) -> None:
    between.body_limit = 1_000_000
    await publish(source)
    assert arrived(control_host) == DATA
    refused = [params for params in between.posts() if params["offset"] == "0"]
    assert len(refused) == 2, "the first piece, and once more with less"


async def test_pieces_grow_while_the_line_holds_and_begin_again_when_it_broke(
    publish: Any, source: Path, between: Between, control_host: ControlStoreDouble
) -> None:
    await publish(source, chunk_bytes=256 * KIB)
    offsets = [int(params["offset"]) for params in between.posts()]
    sizes = [after - before for before, after in itertools.pairwise(offsets)]
    assert [math.ceil(size / KIB) for size in sizes[:4]] == [256, 512, 1024, 2048]
    pieces = Pieces(MIB)
    for _ in range(5):
        pieces.went(pieces.n_bytes)
    assert pieces.n_bytes == 8 * MIB
    pieces.broke()
    assert pieces.n_bytes == MIB


async def test_a_proxy_that_takes_the_first_piece_gets_no_larger_ones(
    publish: Any, source: Path, between: Between, control_host: ControlStoreDouble
) -> None:
    between.body_limit = 1_500_000
    await publish(source, chunk_bytes=MIB)
    assert arrived(control_host) == DATA
    assert [round(int(params["offset"]) / MIB) for params in between.posts()] == [0, 1, 1, 2, 3, 4, 5]


async def test_a_small_file_passes_such_a_proxy_too(
    publish: Any, tmp_path: Path, between: Between, control_host: ControlStoreDouble
) -> None:
    path = tmp_path / "small"
    path.write_bytes(DATA[:MIB])
    between.body_limit = 1_000_000
    await publish(path)
    assert arrived(control_host) == DATA[:MIB]


async def test_a_proxy_that_takes_hardly_anything_is_named(
    publish: Any, source: Path, between: Between
) -> None:
    between.body_limit = 1000
    with pytest.raises(Refused, match=r"proxy.*client_max_body_size") as refused:
        await publish(source)
    assert refused.value.code == "proxy.413"
    assert "CODEFYUI_MAX_UPLOAD_SIZE" not in refused.value.message


async def test_a_file_over_the_servers_limit_is_not_begun(
    publish: Any, source: Path, between: Between
) -> None:
    with pytest.raises(Refused, match="CODEFYUI_MAX_UPLOAD_SIZE"):
        await publish(source, max_upload_bytes=len(DATA) - 1)
    assert between.asked == []


async def test_a_stop_ends_the_upload_where_it_is(publish: Any, source: Path, between: Between) -> None:
    with pytest.raises(TransferStopped):
        await publish(source, progress=ProgressDouble(stop_after=3 * MIB))
    assert between.n_sent <= 5 * MIB


async def test_a_file_that_another_try_left_with_other_bytes_is_begun_again(
    publish: Any, source: Path, between: Between, control_host: ControlStoreDouble
) -> None:
    between.break_after = 3 * MIB
    with pytest.raises(Busy):
        await publish(source)
    (part,) = control_host.arrivals.parts.values()
    part[17] ^= 1
    with pytest.raises(Corrupt):
        await publish(source)
    await publish(source)
    assert arrived(control_host) == DATA


async def test_while_the_servers_disk_is_full_it_is_tried_again(
    publish: Any, source: Path, control_host: ControlStoreDouble
) -> None:
    append = control_host.arrivals.append

    async def full(*args: Any) -> int:
        raise CodefyError("The disk is full.", code="storage.full")

    control_host.arrivals.append = full  # type: ignore[method-assign]
    with pytest.raises(Busy, match="full"):
        await publish(source)
    control_host.arrivals.append = append  # type: ignore[method-assign]
    await publish(source)
    assert arrived(control_host) == DATA


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_answer_that_was_damaged_on_its_way_is_asked_for_again(
    method: str, publish: Any, source: Path, between: Between, control_host: ControlStoreDouble
) -> None:
    request, damaged = between.request, []

    @asynccontextmanager
    async def damaging(asked: str, *words: Any, **more: Any) -> AsyncIterator[Any]:
        async with request(asked, *words, **more) as response:
            if asked == method and not damaged:
                damaged.append(await response.read())
                response._body = damaged[0][:3] + b"\xff" + damaged[0][4:]
            yield response

    between.request = damaging
    with pytest.raises(Busy, match="damaged"):
        await publish(source)
    receipt = await publish(source)
    assert (arrived(control_host), receipt.size_bytes) == (DATA, len(DATA))


async def test_a_hash_that_was_damaged_in_the_answer_is_not_taken(
    publish: Any, source: Path, between: Between, control_host: ControlStoreDouble
) -> None:
    request, sha256 = between.request, hashlib.sha256(DATA).hexdigest().encode()

    @asynccontextmanager
    async def damaging(*words: Any, **more: Any) -> AsyncIterator[Any]:
        async with request(*words, **more) as response:
            response._body = (await response.read()).replace(sha256, bytes([sha256[0] ^ 1]) + sha256[1:])
            yield response

    between.request = damaging
    with pytest.raises(Busy, match="damaged"):
        await publish(source)
    between.request = request
    assert (await publish(source)).sha256.encode() == sha256
    assert between.n_sent < len(DATA) + KIB


async def test_a_file_that_is_gone_is_refused(publish: Any, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="can't be read"):
        await publish(tmp_path / "gone.pt")


async def test_a_file_that_becomes_shorter_is_refused(publish: Any, source: Path) -> None:
    class Cuts(ProgressDouble):
        def advance(self, n_bytes: int) -> None:
            os.truncate(source, MIB)

    with pytest.raises(Refused, match="became shorter"):
        await publish(source, progress=Cuts())
