"""Small inputs on their way to a worker: what the server answers."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from transfer_between import ATTEMPT

from codefyui_core.plugin import Busy, Family, Refused
from codefyui_core.testing.hosts import ControlStoreDouble
from codefyui_core.testing.served_routes import HttpDouble
from codefyui_storage_transfer import input_route
from codefyui_storage_transfer.input_parcel import FILE_BYTES, MOST_FILES

PATH = f"/api/runs/{ATTEMPT.run_id}/inputs/parcel"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Server:
    """Has files, and is asked for them."""

    def __init__(self, host: ControlStoreDouble, http: HttpDouble) -> None:
        self.host = host
        self.http = http

    def has(self, *contents: bytes) -> list[str]:
        """Their hashes."""
        for number, data in enumerate(contents, len(self.host.uploads)):
            self.host.uploads[Family.FILES, f"{number}.csv"] = data
            path = self.path(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return [sha(data) for data in contents]

    def path(self, number: int) -> Path:
        return self.host.folders.of(Family.FILES) / f"{number}.csv"

    async def asked(self, inputs: Any) -> tuple[list[Any], bytes]:
        """The list, and the bytes behind it."""
        return await self.sent(json.dumps({"inputs": inputs}).encode())

    async def sent(self, body: bytes) -> tuple[list[Any], bytes]:
        async with self.http.request("POST", PATH, data=body) as response:
            line, _, data = (await response.read()).partition(b"\n")
            return json.loads(line)["files"], data


@pytest.fixture
def server(control_host: ControlStoreDouble, http: HttpDouble) -> Server:
    return Server(control_host, http)


async def test_files_come_in_the_order_in_which_they_are_asked_for(server: Server) -> None:
    one, two, empty = server.has(b"one", b"second", b"")
    files, data = await server.asked([two, empty, one])
    assert files == [
        {"sha256": two, "size": 6},
        {"sha256": empty, "size": 0},
        {"sha256": one, "size": 3},
    ]
    assert data == b"secondone"


async def test_many_files_come_in_several_pieces(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_route, "PIECE_BYTES", 1000)
    contents = [os.urandom(size) for size in (400, 400, 400, 3000, 1, 999, 1000)]
    _, data = await server.asked(server.has(*contents))
    assert data == b"".join(contents)


async def test_a_file_that_does_not_come_costs_no_other(server: Server) -> None:
    hashes = server.has(b"gone", b"changed", b"a folder", b"large" * FILE_BYTES, b"there")
    server.path(0).unlink()
    server.path(1).write_bytes(b"another one")
    server.path(2).unlink()
    server.path(2).mkdir()
    files, data = await server.asked([*hashes, "0" * 64])
    assert data == b"there"
    assert [one.get("code") for one in files] == [
        "files.not_found",
        "storage.corrupt",
        "storage.corrupt",
        "request.too_large",
        None,
        "files.not_found",
    ]
    assert "0.csv isn't here any more" in files[0]["detail"]
    assert "11 bytes now, not 7" in files[1]["detail"]


@pytest.mark.parametrize(
    "inputs",
    [
        [],
        ["x"],
        ["A" * 64],
        ["0" * 64] * 2,
        [f"{number:064x}" for number in range(MOST_FILES + 1)],
        [7],
        ["../session.token"],
        "0" * 64,
        None,
    ],
)
async def test_a_request_of_another_shape_is_refused(server: Server, inputs: Any) -> None:
    with pytest.raises(Refused) as refused:
        await server.asked(inputs)
    assert refused.value.code == "request.schema"
    assert refused.value.message.startswith("inputs")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "request.not_json"),
        (b"{", "request.not_json"),
        (b"[" * 100_000, "request.not_json"),
        (b"[]", "request.schema"),
    ],
)
async def test_a_body_that_cannot_be_read_is_refused(server: Server, body: bytes, code: str) -> None:
    with pytest.raises(Refused) as refused:
        await server.sent(body[:60_000])
    assert refused.value.code == code


async def test_a_list_of_refusals_stays_one_short_line(server: Server) -> None:
    name = "x" * 4000
    server.host.uploads[Family.FILES, name] = b"x" * 10
    files, data = await server.asked(
        [sha(b"x" * 10), *(f"{number:064x}" for number in range(MOST_FILES - 1))]
    )
    assert data == b""
    assert len(json.dumps(files)) < 1 << 16


@pytest.mark.parametrize("change", ["shorter", "longer", "gone"])
async def test_a_file_that_changes_while_it_is_sent_ends_the_line(
    server: Server, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(input_route, "PIECE_BYTES", 1)
    hashes = server.has(*(os.urandom(100_000) for _ in range(30)))
    begin = input_route.Parcel.begin

    def changes(parcel: input_route.Parcel) -> bytearray:
        first = begin(parcel)
        match change:
            case "shorter":
                server.path(20).write_bytes(b"x")
            case "longer":
                server.path(20).write_bytes(b"x" * 100_001)
            case _:
                server.path(20).unlink()
        return first

    monkeypatch.setattr(input_route.Parcel, "begin", changes)
    with pytest.raises(Busy):
        await server.asked(hashes)


async def test_who_leaves_leaves_nothing_open(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_route, "PIECE_BYTES", 1)
    hashes = server.has(*(os.urandom(1_000_000) for _ in range(30)))
    async with server.http.request("POST", PATH, json={"inputs": hashes}) as response:
        await response.content.readline()
        response.close()
    files, _ = await server.asked(hashes[:1])
    assert files == [{"sha256": hashes[0], "size": 1_000_000}]
