"""Downloads of inputs."""

import hashlib
import os
from pathlib import Path

import pytest
from s3_planes import TRAIN, Halves, MakeSite

from cdui_develop.bucket_stub import Asked, Says, Stub, error
from codefyui_core.plugin import Busy, Corrupt, Expired, Family, Refused, TransferStopped
from codefyui_core.testing.hosts import ProgressDouble
from codefyui_storage_s3.fetching import RANGE_BYTES

LARGE = os.urandom(1 << 20) * 27


@pytest.fixture
async def halves(site_of: MakeSite, stub_settings: dict[str, object]) -> Halves:
    made: Halves = await site_of(stub_settings, s3_credentials="sts")
    await made.start()
    made.host.uploads = {(Family.FILES, "train.csv"): LARGE}
    return made


def _gets(stub: Stub) -> list[str]:
    return [asked.headers["range"] for asked in stub.of("GET") if "/inputs/" in asked.path]


async def test_a_large_input_comes_in_ranges_and_is_hashed_on_the_way(
    halves: Halves, stub: Stub, tmp_path: Path
) -> None:
    staged, progress, into = await halves.staged(), ProgressDouble(), tmp_path / "into"
    into.touch()
    async with halves.session(staged) as session:
        digest = await session.fetch(staged.ticket.inputs[0], into, progress)
    assert into.read_bytes() == LARGE
    assert digest == hashlib.sha256(LARGE).hexdigest()
    assert progress.n_bytes == len(LARGE)
    assert len(_gets(stub)) == -(-len(LARGE) // RANGE_BYTES)


async def test_a_later_try_goes_on_where_the_file_ends(halves: Halves, stub: Stub, tmp_path: Path) -> None:
    staged, into = await halves.staged(), tmp_path / "into"
    into.write_bytes(LARGE[: 10 << 20])
    async with halves.session(staged) as session:
        digest = await session.fetch(staged.ticket.inputs[0], into, ProgressDouble())
    assert digest == hashlib.sha256(LARGE).hexdigest()
    assert into.read_bytes() == LARGE
    assert min(int(one.removeprefix("bytes=").partition("-")[0]) for one in _gets(stub)) == 10 << 20


async def test_what_came_before_a_line_broke_is_kept(halves: Halves, stub: Stub, tmp_path: Path) -> None:
    staged, into = await halves.staged(), tmp_path / "into"
    into.touch()

    def rule(asked: Asked) -> Says | None:
        return (
            error("SlowDown", 503)
            if asked.headers.get("range", "").startswith(f"bytes={2 * RANGE_BYTES}-")
            else None
        )

    stub.rule = rule
    async with halves.session(staged) as session:
        with pytest.raises(Busy):
            await session.fetch(staged.ticket.inputs[0], into, ProgressDouble())
        assert into.read_bytes() == LARGE[: 2 * RANGE_BYTES]
        stub.rule = lambda asked: None
        stub.asked.clear()
        await session.fetch(staged.ticket.inputs[0], into, ProgressDouble())
    assert into.read_bytes() == LARGE
    assert len(_gets(stub)) == 2


async def test_a_file_that_is_there_whole_costs_no_request(
    halves: Halves, stub: Stub, tmp_path: Path
) -> None:
    staged, into = await halves.staged(), tmp_path / "into"
    into.write_bytes(LARGE)
    async with halves.session(staged) as session:
        digest = await session.fetch(staged.ticket.inputs[0], into, ProgressDouble())
    assert digest == hashlib.sha256(LARGE).hexdigest()
    assert _gets(stub) == []


async def test_an_empty_input_is_an_empty_file(halves: Halves, tmp_path: Path) -> None:
    halves.host.uploads = {(Family.FILES, "empty.csv"): b""}
    staged, into = await halves.staged(), tmp_path / "into"
    async with halves.session(staged) as session:
        digest = await session.fetch(staged.ticket.inputs[0], into, ProgressDouble())
    assert into.read_bytes() == b""
    assert digest == hashlib.sha256(b"").hexdigest()


async def test_more_than_there_should_be_is_corrupt(halves: Halves, tmp_path: Path) -> None:
    staged, into = await halves.staged(), tmp_path / "into"
    into.write_bytes(LARGE + b"x")
    async with halves.session(staged) as session:
        with pytest.raises(Corrupt):
            await session.fetch(staged.ticket.inputs[0], into, ProgressDouble())


async def test_an_object_of_another_size_is_corrupt(halves: Halves, stub: Stub, tmp_path: Path) -> None:
    halves.host.uploads = {(Family.FILES, "train.csv"): TRAIN}
    staged, into = await halves.staged(), tmp_path / "into"
    stub.objects[f"/codefyui/inputs/{staged.ticket.inputs[0].sha256}"] = (TRAIN[:-1], {})
    async with halves.session(staged) as session:
        with pytest.raises(Corrupt):
            await session.fetch(staged.ticket.inputs[0], into, ProgressDouble())


async def test_an_input_that_expired_meanwhile_says_what_to_do(
    halves: Halves, stub: Stub, tmp_path: Path
) -> None:
    staged = await halves.staged()
    stub.objects.clear()
    async with halves.session(staged) as session:
        with pytest.raises(Refused, match="queue the run again"):
            await session.fetch(staged.ticket.inputs[0], tmp_path / "into", ProgressDouble())


@pytest.mark.spec("s3/expired-temporary-credentials-retried")
async def test_keys_that_ran_out_are_asked_for_again(halves: Halves, stub: Stub, tmp_path: Path) -> None:
    staged, into = await halves.staged(), tmp_path / "into"

    def rule(asked: Asked) -> Says | None:
        return error("ExpiredToken", 400) if asked.access_key == "TEMPORARY1" else None

    stub.rule = rule
    async with halves.session(staged) as session:
        with pytest.raises(Expired):
            await session.fetch(staged.ticket.inputs[0], into, ProgressDouble())
        await session.renewed(await halves.control.renew(halves.given(staged)))
        await session.fetch(staged.ticket.inputs[0], into, ProgressDouble())
    assert into.read_bytes() == LARGE


@pytest.mark.spec("s3/same-endpoint-address-for-both-sides")
async def test_a_bucket_that_the_worker_cannot_reach_is_named_by_its_address(
    halves: Halves, stub: Stub, tmp_path: Path
) -> None:
    staged = await halves.staged()
    stub.close()
    async with halves.session(staged) as session:
        with pytest.raises(Busy, match=stub.url):
            await session.fetch(staged.ticket.inputs[0], tmp_path / "into", ProgressDouble())


async def test_a_stop_ends_a_download(halves: Halves, tmp_path: Path) -> None:
    staged, into = await halves.staged(), tmp_path / "into"
    async with halves.session(staged) as session:
        with pytest.raises(TransferStopped):
            await session.fetch(staged.ticket.inputs[0], into, ProgressDouble(stop_after=1 << 20))
    assert into.stat().st_size < len(LARGE)
