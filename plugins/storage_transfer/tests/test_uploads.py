"""The upload routes: what they take, from whom, and where it comes to lie."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transfer_between import ATTEMPT, WORKER

from codefyui_core.plugin import Caller, Family, Refused, WorkerId
from codefyui_core.testing.hosts import ControlStoreDouble
from codefyui_core.testing.served_routes import HttpDouble, served_routes
from codefyui_storage_transfer.blocks import head_of
from codefyui_storage_transfer.control import TransferControl
from codefyui_storage_transfer.models import LEAST_BLOCK_BYTES, UPLOAD_PATH
from codefyui_storage_transfer.turns import AT_ONCE

PATH = UPLOAD_PATH.format(run_id=ATTEMPT.run_id)
DATA = b"weights " * 1000
SHA = hashlib.sha256(DATA).hexdigest()
FENCE = {"X-CodefyUI-Attempt": "1.lease"}


@pytest.fixture
def send(http: HttpDouble) -> Any:
    async def send(data: Any = DATA, method: str = "POST", fence: bool = True, **params: Any) -> Any:
        query = {"key": "k1", "kind": "checkpoint", "name": "a.pt"} | params
        async with http.request(
            method,
            PATH,
            headers=FENCE if fence else {},
            params={name: str(value) for name, value in query.items() if value is not None},
            data=data,
        ) as response:
            return await response.json()

    return send


async def refusal(sending: Any) -> str:
    with pytest.raises(Refused) as refused:
        await sending
    return str(refused.value.code)


def everything(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


async def test_a_file_of_the_run_lies_below_its_kind(send: Any, control_host: ControlStoreDouble) -> None:
    answer = await send(name="deep/a.pt", offset=0, size=len(DATA), sha256=SHA)
    assert answer["relative_path"] == f"runs/{ATTEMPT.run_id}/checkpoint/deep/a.pt"
    assert (control_host.run_files / ATTEMPT.run_id / "checkpoint/deep/a.pt").read_bytes() == DATA


@pytest.mark.spec("transfer/name-collision-keeps-existing-and-adds-suffix")
async def test_an_output_lies_where_a_local_run_writes_it_and_never_over_another(
    send: Any, control_host: ControlStoreDouble
) -> None:
    models = control_host.folders.of(Family.MODELS)
    models.mkdir(parents=True)
    (models / "best.pt").write_bytes(b"mine")
    whole = {"offset": 0, "size": len(DATA), "sha256": SHA}
    answer = await send(kind="output", name="best.pt", relative_path="models/best.pt", **whole)
    assert answer["relative_path"] == "models/best-1.pt"
    assert (models / "best.pt").read_bytes() == b"mine"


@pytest.mark.spec("transfer/same-address-and-worker-token")
async def test_one_request_without_an_agent_lists_the_file(
    send: Any, control_host: ControlStoreDouble
) -> None:
    answer = await send(fence=False, key=None)
    assert answer["placed"]
    (stored,) = control_host.recorded[ATTEMPT.run_id].values()
    assert (stored.key, stored.sha256, stored.size_bytes) == (answer["artifact_id"], SHA, len(DATA))
    again = await send(fence=False, key=None)
    assert again == answer
    assert len(control_host.recorded[ATTEMPT.run_id]) == 1
    assert await refusal(send(data=b"other", fence=False, key=None)) == "upload.exists"


async def test_what_an_agent_sends_is_listed_by_its_receipt(
    send: Any, control_host: ControlStoreDouble
) -> None:
    answer = await send()
    assert answer["artifact_id"] is None
    assert control_host.recorded == {}


async def test_every_order_and_repetition_ends_the_same(send: Any, control_host: ControlStoreDouble) -> None:
    last = {"size": len(DATA), "sha256": SHA}
    assert await refusal(send(data=b"", offset=len(DATA), **last)) == "upload.not_found"
    assert (await send(data=DATA[:100], offset=0))["offset"] == 100
    assert await refusal(send(data=DATA[:100], offset=0)) == "upload.offset"
    assert await refusal(send(data=DATA[200:], offset=200, **last)) == "upload.offset"
    assert (await send(data=None, method="GET"))["offset"] == 100
    placed = await send(data=DATA[100:], offset=100, **last)
    for _ in range(2):
        assert await send(data=DATA[100:], offset=100, **last) == placed
        assert await send(data=b"", offset=len(DATA), **last) == placed
        assert await send(data=None, method="GET") == placed
    assert await refusal(send(data=DATA[:100], offset=0)) == "upload.exists"
    assert everything(control_host.run_files) == {f"{ATTEMPT.run_id}/checkpoint/a.pt"}


async def test_two_at_once_for_one_file_place_it_once(send: Any, control_host: ControlStoreDouble) -> None:
    whole = {"offset": 0, "size": len(DATA), "sha256": SHA}
    answers = await asyncio.gather(*(send(**whole) for _ in range(5)), return_exceptions=True)
    assert [one for one in answers if not isinstance(one, Exception)]
    assert {one.code for one in answers if isinstance(one, Refused)} <= {"upload.offset"}
    assert everything(control_host.run_files) == {f"{ATTEMPT.run_id}/checkpoint/a.pt"}


async def test_other_bytes_than_announced_are_dropped(send: Any, control_host: ControlStoreDouble) -> None:
    assert await refusal(send(offset=0, size=len(DATA), sha256="0" * 64)) == "upload.mismatch"
    assert everything(control_host.run_files) == set()
    assert (await send(data=None, method="GET"))["offset"] == 0


async def test_the_piece_that_reaches_the_size_is_the_last_and_its_answer_has_the_hash(
    send: Any, control_host: ControlStoreDouble
) -> None:
    assert (await send(data=DATA[:100], offset=0, size=len(DATA)))["placed"] is False
    placed = await send(data=DATA[100:], offset=100, size=len(DATA))
    assert (placed["placed"], placed["sha256"], placed["offset"]) == (True, SHA, len(DATA))
    assert await refusal(send(data=DATA[100:], offset=100, size=len(DATA))) == "upload.exists"
    assert everything(control_host.run_files) == {f"{ATTEMPT.run_id}/checkpoint/a.pt"}


async def test_blocks_are_taken_up_to_the_damaged_one(send: Any, control_host: ControlStoreDouble) -> None:
    data = os.urandom(200_000)
    blocks = [data[start : start + LEAST_BLOCK_BYTES] for start in range(0, len(data), LEAST_BLOCK_BYTES)]
    body = b"".join(head_of(block) + block for block in blocks)
    damaged = body[:150_000] + bytes([body[150_000] ^ 1]) + body[150_001:]
    asked = {"offset": 0, "size": len(data), "block_bytes": LEAST_BLOCK_BYTES}
    assert await refusal(send(data=damaged, **asked)) == "upload.mismatch"
    offset = (await send(data=None, method="GET"))["offset"]
    assert offset == 2 * LEAST_BLOCK_BYTES
    rest = b"".join(head_of(block) + block for block in blocks[2:])
    placed = await send(data=rest, **asked | {"offset": offset})
    assert placed["sha256"] == hashlib.sha256(data).hexdigest()


async def test_the_limit_is_one_of_files_not_of_bodies(send: Any, control_host: ControlStoreDouble) -> None:
    control_host.max_upload_bytes = 1000
    asked = {"offset": 0, "block_bytes": LEAST_BLOCK_BYTES}
    assert await refusal(send(data=head_of(DATA[:1001]) + DATA[:1001], **asked)) == "request.too_large"
    answer = await send(data=head_of(DATA[:1000]) + DATA[:1000], size=1000, **asked)
    assert answer["placed"] is True


async def test_another_file_under_the_same_key_is_refused(send: Any) -> None:
    await send()
    other = {"offset": 5, "size": 5, "sha256": hashlib.sha256(b"other").hexdigest()}
    assert await refusal(send(data=b"", **other)) == "upload.exists"


async def test_an_attempt_that_ended_meanwhile_places_nothing(
    send: Any, control_host: ControlStoreDouble
) -> None:
    await send(data=DATA, offset=0)
    control_host.attempts.clear()
    assert await refusal(send(data=b"", offset=len(DATA), size=len(DATA), sha256=SHA)) == "run.attempt_over"
    assert everything(control_host.run_files) == set()


async def test_a_file_over_the_limit_is_refused_before_it_is_read(
    send: Any, control_host: ControlStoreDouble
) -> None:
    control_host.max_upload_bytes = 1000
    assert await refusal(send(data=DATA)) == "request.too_large"
    assert await refusal(send(data=b"x", offset=0, size=1001, sha256=SHA)) == "request.too_large"
    assert await refusal(send(data=b"x", offset=1000)) == "request.too_large"
    assert control_host.arrivals.parts == {}


async def test_a_body_without_length_and_end_is_cut_at_the_limit(
    send: Any, control_host: ControlStoreDouble
) -> None:
    control_host.arrivals.limit_bytes = control_host.max_upload_bytes = 1 << 20
    n_sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal n_sent
        while True:
            n_sent += 65536
            yield bytes(65536)

    with pytest.raises(Exception, match=r"too large|no connection"):
        await send(data=endless(), offset=0)
    assert n_sent < 64 << 20
    (part,) = control_host.arrivals.parts.values()
    assert len(part) <= 1 << 20


HOSTILE = [
    "../a",
    "a/../../b",
    "/etc/passwd",
    "..\\a",
    "\\\\host\\share\\a",
    "C:/a",
    "c:a",
    "a\0b",
    "a\nb",
    "..",
    ".",
    "",
    "con.pt",
    "x" * 256,
    "/".join(["deep"] * 300),
]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("kind", ["checkpoint", "output"])
async def test_hostile_names_lead_nowhere(
    kind: str, name: str, send: Any, control_host: ControlStoreDouble
) -> None:
    before = everything(control_host.root)
    path = f"models/{name}" if kind == "output" else None
    assert await refusal(send(kind=kind, name=name, relative_path=path)) == "files.bad_name"
    assert everything(control_host.root) == before


@pytest.mark.parametrize("name", ["%2e%2e/a", "a#b", "a?b=c", "a;b", "é.pt", "a&b", "a%00b", "a+b c"])
async def test_odd_names_are_names(name: str, send: Any, control_host: ControlStoreDouble) -> None:
    await send(name=name)
    assert everything(control_host.run_files) == {f"{ATTEMPT.run_id}/checkpoint/{name}"}


@pytest.mark.parametrize("kind", ["..", ".", "", "a/b", "a.b", "A", "x" * 65, "a\0"])
async def test_kinds_are_words(kind: str, send: Any, control_host: ControlStoreDouble) -> None:
    assert await refusal(send(kind=kind)) == "request.invalid"
    assert everything(control_host.root) == set()


@pytest.mark.parametrize(
    "path", ["graphs/a.json", "presets/a.json", "cache/a", "custom_nodes/evil.py", "a.pt", "models"]
)
async def test_outputs_go_to_families_that_runs_write_to_alone(
    path: str, send: Any, control_host: ControlStoreDouble
) -> None:
    assert await refusal(send(kind="output", relative_path=path)) == "files.bad_name"
    assert everything(control_host.root) == set()


@pytest.mark.parametrize(
    "wrong",
    [
        {"offset": -1},
        {"offset": "x"},
        {"sha256": "short"},
        {"size": -5},
        {"key": ""},
        {"key": "k" * 129},
        {"block_bytes": 1000},
    ],
)
async def test_a_query_that_makes_no_sense_is_named_by_field(wrong: dict[str, Any], send: Any) -> None:
    assert await refusal(send(**wrong)) == "request.invalid"


async def test_a_worker_has_few_uploads_at_once_and_the_rest_wait(
    send: Any, control_host: ControlStoreDouble
) -> None:
    under_way = most = 0
    go_on = asyncio.Event()
    append = control_host.arrivals.append

    async def watched(*args: Any) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == AT_ONCE:
            asyncio.get_running_loop().call_later(0.05, go_on.set)
        await go_on.wait()
        under_way -= 1
        return await append(*args)

    control_host.arrivals.append = watched  # type: ignore[method-assign]
    sent = [send(key=f"k{n}", name=f"{n}.pt", data=os.urandom(10)) for n in range(3 * AT_ONCE)]
    await asyncio.gather(*sent)
    assert most == AT_ONCE
    assert len(everything(control_host.run_files)) == 3 * AT_ONCE


async def test_a_worker_whose_lines_stall_holds_up_no_other(
    http: HttpDouble, control: TransferControl, send: Any
) -> None:
    go_on = asyncio.Event()

    async def stalled() -> AsyncIterator[bytes]:
        yield b"w"
        await go_on.wait()

    waiting = [asyncio.create_task(send(data=stalled(), key=f"k{n}", name=f"{n}.pt")) for n in range(20)]
    other = replace(WORKER, id=WorkerId("0" * 31 + "3"), name="other")
    attempt = replace(ATTEMPT, worker_id=other.id)
    async with served_routes(control.routes(), Caller(worker=other, attempt=attempt)) as its_own:
        params = {"kind": "checkpoint", "name": "other.pt", "offset": "0"}
        async with its_own.request("POST", PATH, params=params, data=DATA, headers=FENCE) as response:
            assert (await response.json())["offset"] == len(DATA)
    assert not any(one.done() for one in waiting)
    go_on.set()
    assert [one["placed"] for one in await asyncio.gather(*waiting)] == [True] * 20
