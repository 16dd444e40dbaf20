"""Uploads of outputs: parts, later tries, keys that run out on the way."""

import asyncio
import hashlib
import os
from typing import Any

import pytest
from s3_planes import ATTEMPT, RUN_ID, Halves, MakeSite, output_of

from cdui_develop.bucket_stub import Asked, Says, Stub, error
from cdui_develop.seaweedfs import SeaweedFS
from codefyui_core.plugin import Busy, Expired, Refused, TransferStopped
from codefyui_core.testing.hosts import NotesDouble, ProgressDouble
from codefyui_storage_s3.uploading import PART_BYTES

MIB = 1 << 20
LARGE = os.urandom(MIB) * 50
"""Four parts, the last one short."""
KEY = f"runs/{RUN_ID}/checkpoint/digits/epoch-1.pt"


@pytest.fixture
async def halves(site_of: MakeSite, stub_settings: dict[str, object]) -> Halves:
    made: Halves = await site_of(stub_settings, s3_credentials="sts")
    return await made.start()


def _parts(stub: Stub) -> list[int]:
    return sorted(int(asked.query["partNumber"]) for asked in stub.of("PUT", "partNumber"))


def _first_time(number: int, answer: Says):
    """A rule that answers the first sending of one part."""
    answered: list[Asked] = []

    def rule(asked: Asked) -> Says | None:
        if asked.query.get("partNumber") == str(number) and not answered:
            answered.append(asked)
            return answer
        return None

    return rule


async def test_a_small_file_is_one_request_with_its_hash(halves: Halves, stub: Stub) -> None:
    staged = await halves.staged()
    stub.asked.clear()
    async with halves.session(staged) as session:
        _, receipt = await halves.publish(session, b"weights")
    (asked,) = stub.asked
    assert asked.headers["x-amz-meta-sha256"] == hashlib.sha256(b"weights").hexdigest() == receipt.sha256
    assert receipt.size_bytes == 7


async def test_a_large_file_goes_in_parts_and_its_id_is_told_before_the_first(
    halves: Halves, stub: Stub
) -> None:
    staged = await halves.staged()
    known: list[bool] = []

    def rule(asked: Asked) -> Says | None:
        if "partNumber" in asked.query:
            known.append(bool(halves.agent_host.told))
        return None

    stub.rule = rule
    progress = ProgressDouble()
    async with halves.session(staged) as session:
        output, receipt = await halves.publish(session, LARGE, progress=progress)
    assert _parts(stub) == [1, 2, 3, 4]
    assert known == [True] * 4
    assert halves.agent_host.told == [(ATTEMPT, {"key": KEY, "upload_id": "upload-1"})]
    assert stub.objects[f"/codefyui/{KEY}"][0] == LARGE
    assert receipt.sha256 == hashlib.sha256(LARGE).hexdigest()
    assert receipt.upload_id == "upload-1"
    assert progress.n_bytes == len(LARGE)
    stored = await halves.control.accept(halves.given(staged), output, receipt)
    assert stored.relative_path == KEY


@pytest.mark.parametrize("code", ["SlowDown", "InternalError"])
async def test_a_later_try_sends_the_failed_part_and_no_other_twice(
    halves: Halves, stub: Stub, code: str
) -> None:
    staged, notes = await halves.staged(), NotesDouble()
    stub.rule = _first_time(2, error(code, 503))
    async with halves.session(staged) as session:
        with pytest.raises(Busy):
            await halves.publish(session, LARGE, notes=notes)
        await halves.publish(session, LARGE, notes=notes)
    assert [number for number in _parts(stub) if number != 2] == [1, 3, 4]
    assert _parts(stub).count(2) == 2
    assert stub.objects[f"/codefyui/{KEY}"][0] == LARGE


@pytest.mark.spec("s3/expired-temporary-credentials-retried")
@pytest.mark.parametrize(
    ("code", "status", "past_expiry"), [("ExpiredToken", 400, False), ("InvalidAccessKeyId", 403, True)]
)
async def test_keys_that_run_out_in_the_middle_cost_one_part_and_the_next_go_with_new_ones(
    halves: Halves, stub: Stub, code: str, status: int, past_expiry: bool
) -> None:
    staged, notes = await halves.staged(), NotesDouble()
    stub.rule = _first_time(3, error(code, status))
    async with halves.session(staged) as session:
        if past_expiry:
            await halves.clock.advance(3601)
        with pytest.raises(Expired):
            await halves.publish(session, LARGE, notes=notes)
        await session.renewed(await halves.control.renew(halves.given(staged)))
        await halves.publish(session, LARGE, notes=notes)
    by_part: dict[str, list[str]] = {}
    for asked in stub.of("PUT", "partNumber"):
        by_part.setdefault(asked.query["partNumber"], []).append(asked.access_key)
    assert by_part["1"] == by_part["2"] == ["TEMPORARY1"]
    assert by_part["3"] == ["TEMPORARY1", "TEMPORARY2"]
    assert len(by_part["4"]) == 1
    assert stub.objects[f"/codefyui/{KEY}"][0] == LARGE


async def test_new_keys_sign_the_next_part_of_an_upload_that_is_going(halves: Halves, stub: Stub) -> None:
    """Nothing has to fail for it."""
    large = os.urandom(MIB) * 16 * 12
    staged = await halves.staged()
    async with halves.session(staged) as session:
        renewed = await halves.control.renew(halves.given(staged))
        loop = asyncio.get_running_loop()

        def rule(asked: Asked) -> Says | None:
            if asked.query.get("partNumber") == "1":
                asyncio.run_coroutine_threadsafe(session.renewed(renewed), loop).result(10)
            return None

        stub.rule = rule
        await halves.publish(session, large)
    last = next(one for one in stub.of("PUT", "partNumber") if one.query["partNumber"] == "12")
    assert last.access_key == "TEMPORARY2"


@pytest.mark.spec("s3/invalid-access-key-retried-only-when-expired-temporary")
@pytest.mark.parametrize("mode", ["sts", "static"])
async def test_an_unknown_key_before_its_expiry_is_final(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub, mode: str
) -> None:
    halves = await (await site_of(stub_settings, s3_credentials=mode)).start()
    staged = await halves.staged()
    stub.rule = lambda asked: error("InvalidAccessKeyId", 403)
    async with halves.session(staged) as session:
        with pytest.raises(Refused):
            await halves.publish(session, b"weights")


async def test_an_agent_that_was_restarted_goes_on_where_the_last_one_stopped(
    halves: Halves, stub: Stub, site_of: MakeSite, stub_settings: dict[str, object]
) -> None:
    staged, notes = await halves.staged(), NotesDouble()
    stub.rule = _first_time(4, error("SlowDown", 503))
    async with halves.session(staged) as session:
        with pytest.raises(Busy):
            await halves.publish(session, LARGE, notes=notes)
    again: Halves = await site_of(stub_settings)
    await again.agent.start()
    path = halves.agent_host.workspace(ATTEMPT).folders.locate("models/digits/epoch-1.pt")
    async with again.agent.open(ATTEMPT, staged.ticket, None) as session:
        with pytest.raises(Expired, match="no keys"):
            await session.publish(output_of(LARGE), path, NotesDouble(notes.notes), ProgressDouble())
        await session.renewed(await halves.control.renew(halves.given(staged)))
        await session.publish(output_of(LARGE), path, NotesDouble(notes.notes), ProgressDouble())
    assert _parts(stub) == [1, 2, 3, 4, 4]
    assert stub.objects[f"/codefyui/{KEY}"][0] == LARGE


async def test_an_upload_that_somebody_aborted_begins_anew(halves: Halves, stub: Stub) -> None:
    staged, notes = await halves.staged(), NotesDouble()
    stub.rule = _first_time(4, error("SlowDown", 503))
    async with halves.session(staged) as session:
        with pytest.raises(Busy):
            await halves.publish(session, LARGE, notes=notes)
        stub.uploads.clear()
        await halves.publish(session, LARGE, notes=notes)
    assert stub.objects[f"/codefyui/{KEY}"][0] == LARGE
    assert len(halves.agent_host.told) == 2


@pytest.mark.parametrize(
    "notes",
    [
        {"not": "ours"},
        {
            "bucket": {"name": "other", "endpoint_url": "", "region": "x", "style": "path"},
            "key": KEY,
            "upload_id": "1",
            "size_bytes": len(LARGE),
            "part_bytes": PART_BYTES,
        },
    ],
)
async def test_notes_of_something_else_are_not_gone_on_from(
    halves: Halves, stub: Stub, notes: dict[str, Any]
) -> None:
    async with halves.session(await halves.staged()) as session:
        await halves.publish(session, LARGE, notes=NotesDouble(notes))
    assert _parts(stub) == [1, 2, 3, 4]


@pytest.mark.spec("s3/refused-upload-stays-on-worker")
async def test_a_refused_part_is_final_and_no_further_part_begins(halves: Halves, stub: Stub) -> None:
    large = os.urandom(MIB) * 16 * 12

    def rule(asked: Asked) -> Says | None:
        return error("AccessDenied", 403) if asked.query.get("partNumber") == "1" else None

    stub.rule = rule
    async with halves.session(await halves.staged()) as session:
        with pytest.raises(Refused, match="AccessDenied"):
            await halves.publish(session, large)
    assert len(_parts(stub)) < 12
    assert stub.of("POST", "uploadId") == []


async def test_a_stop_ends_an_upload_in_parts(halves: Halves, stub: Stub) -> None:
    async with halves.session(await halves.staged()) as session:
        with pytest.raises(TransferStopped):
            await halves.publish(session, LARGE, progress=ProgressDouble(stop_after=20 * MIB))
    assert f"/codefyui/{KEY}" not in stub.objects


async def test_no_more_parts_are_in_memory_than_a_run_may_have(halves: Halves, stub: Stub) -> None:
    """Three uploads beside each other share what there is."""
    at_once, most = 0, 0

    def rule(asked: Asked) -> Says | None:
        return None

    stub.rule = rule
    real = halves.agent._threads.run

    async def counted(work: Any, *args: Any, **more: Any) -> Any:
        nonlocal at_once, most
        sends = args[:1] == ("upload_part",)
        at_once += sends
        most = max(most, at_once)
        try:
            return await real(work, *args, **more)
        finally:
            at_once -= sends

    halves.agent._threads.run = counted  # type: ignore[method-assign]
    async with halves.session(await halves.staged()) as session:
        await asyncio.gather(
            *(halves.publish(session, LARGE, name=f"epoch-{number}.pt") for number in range(3))
        )
    assert 1 < most <= 6


@pytest.mark.service
async def test_an_upload_in_parts_is_whole_on_a_real_server(
    site_of: MakeSite, bucket_settings: dict[str, object], seaweedfs: SeaweedFS
) -> None:
    halves = await (await site_of(bucket_settings, s3_credentials="sts")).start()
    staged = await halves.staged()
    stored = await halves.stored(staged, LARGE)
    found = seaweedfs.client().get_object(Bucket=staged.ticket.bucket.name, Key=stored.relative_path)
    assert hashlib.sha256(found["Body"].read()).hexdigest() == stored.sha256
