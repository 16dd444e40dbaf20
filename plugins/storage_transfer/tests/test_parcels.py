"""The route for many small outputs: each fails alone, and a parcel that makes no sense is refused whole."""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from transfer_between import ATTEMPT

from codefyui_core.plugin import Busy, CodefyError, Refused
from codefyui_core.testing.hosts import ControlStoreDouble
from codefyui_core.testing.served_routes import HttpDouble
from codefyui_storage_transfer.models import MANIFEST_BYTES, PARCEL_BYTES, PARCEL_FILES, PARCEL_PATH
from codefyui_storage_transfer.turns import AT_ONCE

PATH = PARCEL_PATH.format(run_id=ATTEMPT.run_id)
FENCE = {"X-CodefyUI-Attempt": "1.lease"}


@pytest.fixture
def post(http: HttpDouble) -> Any:
    async def post(body: Any, fence: bool = True, **headers: str) -> Any:
        async with http.request(
            "POST", PATH, headers=(FENCE if fence else {}) | headers, data=body
        ) as response:
            return (await response.json())["files"]

    return post


def announced(name: str, data: bytes, **more: Any) -> dict[str, Any]:
    said = {"kind": "checkpoint", "name": name, "relative_path": f"models/{name}", "key": f"key of {name}"}
    return said | {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} | more


def parcel(*files: dict[str, Any], data: bytes = b"") -> bytes:
    return json.dumps({"files": files}).encode() + b"\n" + data


async def refusal(sending: Any) -> CodefyError:
    with pytest.raises(Refused) as refused:
        await sending
    return refused.value


def there(host: ControlStoreDouble) -> dict[str, bytes]:
    own = host.run_files / ATTEMPT.run_id
    return {str(path.relative_to(own)): path.read_bytes() for path in own.rglob("*") if path.is_file()}


async def test_the_files_of_a_parcel_lie_where_single_ones_would(
    post: Any, control_host: ControlStoreDouble
) -> None:
    one, two, three = b"1" * 70_000, b"", b"333"
    files = [
        announced("deep/one.pt", one),
        announced("two.pt", two),
        announced("three.pt", three, kind="output"),
    ]
    answers = await post(parcel(*files, data=one + two + three))
    run = f"runs/{ATTEMPT.run_id}"
    assert [answer["relative_path"] for answer in answers] == [
        f"{run}/checkpoint/deep/one.pt",
        f"{run}/checkpoint/two.pt",
        "models/three.pt",
    ]
    assert [answer["placed"] for answer in answers] == [True] * 3
    assert there(control_host) == {"checkpoint/deep/one.pt": one, "checkpoint/two.pt": two}
    assert control_host.recorded == {}
    assert await post(parcel(*files, data=one + two + three)) == answers


async def test_files_without_a_receipt_behind_them_are_listed(
    post: Any, control_host: ControlStoreDouble
) -> None:
    (answer,) = await post(parcel(announced("a.pt", b"a"), data=b"a"), fence=False)
    (stored,) = control_host.recorded[ATTEMPT.run_id].values()
    assert (stored.key, stored.sha256) == (answer["artifact_id"], answer["sha256"])


async def test_a_file_that_is_refused_is_refused_alone(post: Any, control_host: ControlStoreDouble) -> None:
    control_host.max_upload_bytes = 1000
    await post(parcel(announced("taken.pt", b"first"), data=b"first"))
    bad = [
        (announced("../a.pt", b"1"), b"1", "files.bad_name"),
        (announced("b.pt", b"2", kind="a/b"), b"2", "files.bad_name"),
        (announced("c.pt", b"3", kind="output", relative_path="custom_nodes/c.py"), b"3", "files.bad_name"),
        (announced("d.pt", bytes(1001)), bytes(1001), "request.too_large"),
        (announced("e.pt", b"4"), b"5", "upload.mismatch"),
        (announced("taken.pt", b"second"), b"second", "upload.exists"),
    ]
    files, data = [announced("first.pt", b"1st")], b"1st"
    for file, content, _ in bad:
        files += [file, announced(f"after-{len(files)}.pt", b"good")]
        data += content + b"good"
    answers = await post(parcel(*files, data=data))
    assert [answer.get("code") for answer in answers[1::2]] == [code for _, _, code in bad]
    assert all(answer["detail"] for answer in answers[1::2])
    assert all(answer["placed"] for answer in answers[::2])
    good = {f"checkpoint/after-{number}.pt": b"good" for number in range(1, 12, 2)}
    assert there(control_host) == {"checkpoint/first.pt": b"1st", "checkpoint/taken.pt": b"first"} | good


ONE = announced("a.pt", b"a")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "first line"),
        (b"no end", "first line"),
        (b" " * (MANIFEST_BYTES + 1), "first line"),
        (b" " * MANIFEST_BYTES + parcel(ONE, data=b"a"), "first line"),
        (b"\n", "JSON"),
        (b"[" * 100_000 + b"\n", "JSON|valid"),
        (b"\xff\n", "JSON"),
        (b"[]\n", "object"),
        (parcel(), "at least 1"),
        (parcel(*(announced(f"{n}.pt", b"") for n in range(PARCEL_FILES + 1))), "at most 256"),
        (parcel(ONE | {"size": -1}), "greater than or equal to 0"),
        (parcel(ONE | {"size": 10**30}), "bytes by the first line"),
        (parcel(ONE | {"size": PARCEL_BYTES + 1}), "bytes by the first line"),
        (parcel(ONE | {"size": "many"}, data=b"a"), "integer"),
        (parcel(ONE | {"sha256": "short"}, data=b"a"), "pattern"),
        (parcel(ONE | {"key": ""}, data=b"a"), "at least 1"),
        (parcel(ONE | {"name": None}, data=b"a"), "valid string"),
        (parcel(ONE), "bytes by the first line"),
        (parcel(ONE, data=b"ab"), "bytes by the first line"),
        (parcel(ONE, ONE, data=b"aa"), "one key"),
    ],
)
@pytest.mark.parametrize("in_chunks", [False, True])
async def test_a_parcel_that_makes_no_sense_is_refused_whole(
    in_chunks: bool, body: bytes, said: str, post: Any, control_host: ControlStoreDouble
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        """Without a length that could be compared."""
        for start in range(0, len(body), 50_000):
            yield body[start : start + 50_000]

    error = await refusal(post(chunks() if in_chunks else body))
    assert error.code == "request.invalid"
    missing = in_chunks and "bytes by the first line" in said
    assert missing or re.search(said, error.message), error.message
    assert set(there(control_host)) <= {"checkpoint/a.pt"}


async def test_a_first_line_of_another_hash_than_was_said_is_refused(
    http: HttpDouble, control_host: ControlStoreDouble
) -> None:
    body = parcel(ONE, data=b"a")

    async def post(sha256: str) -> None:
        async with http.request("POST", PATH, params={"sha256": sha256}, data=body):
            """It is taken."""

    for wrong in ("x", hashlib.sha256(body).hexdigest()):
        assert (await refusal(post(wrong))).code == "upload.mismatch"
        assert there(control_host) == {}
    await post(hashlib.sha256(body[:-1]).hexdigest())
    assert there(control_host) == {"checkpoint/a.pt": b"a"}


async def test_equal_names_in_one_parcel_get_numbers(post: Any, control_host: ControlStoreDouble) -> None:
    files = [announced("a.pt", data, key=str(number)) for number, data in enumerate([b"1", b"2", b"1"])]
    answers = await post(parcel(*files, data=b"121"))
    assert [answer["relative_path"].rpartition("/")[2] for answer in answers] == [
        "a.pt",
        "a-1.pt",
        "a.pt",
    ]


async def test_what_came_whole_before_the_line_broke_is_kept(
    post: Any, control_host: ControlStoreDouble
) -> None:
    files = [announced(f"{n}.pt", bytes([n]) * 1000) for n in range(4)]
    body = parcel(*files, data=b"".join(bytes([n]) * 1000 for n in range(4)))

    async def breaks() -> AsyncIterator[bytes]:
        yield body[:-1500]
        await asyncio.sleep(0)
        raise ConnectionResetError("the line broke")

    with pytest.raises(Busy):
        await post(breaks(), **{"Content-Length": str(len(body))})
    async with asyncio.timeout(10):
        while len(there(control_host)) < 2:  # noqa: ASYNC110  files give no signal
            await asyncio.sleep(0.01)
    assert set(there(control_host)) == {"checkpoint/0.pt", "checkpoint/1.pt"}
    assert all(answer["placed"] for answer in await post(body))
    assert len(there(control_host)) == 4


async def test_an_attempt_that_ended_meanwhile_places_nothing(
    post: Any, control_host: ControlStoreDouble
) -> None:
    control_host.attempts.clear()
    assert (await refusal(post(parcel(ONE, data=b"a")))).code == "run.attempt_over"
    assert there(control_host) == {}


async def test_a_parcel_has_the_turn_of_one_upload(
    post: Any, control_host: ControlStoreDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way = most = 0
    go_on = asyncio.Event()
    take = control_host.arrivals.take

    async def watched(*words: Any) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == AT_ONCE:
            asyncio.get_running_loop().call_later(0.05, go_on.set)
        await go_on.wait()
        under_way -= 1
        return await take(*words)

    control_host.arrivals.take = watched  # type: ignore[method-assign]
    await asyncio.gather(*(post(parcel(announced(f"{n}", b"x"), data=b"x")) for n in range(2 * AT_ONCE)))
    assert most == AT_ONCE
    assert len(there(control_host)) == 2 * AT_ONCE
