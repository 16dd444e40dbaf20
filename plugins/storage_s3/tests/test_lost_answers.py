"""Uploads whose answer is lost: the file is in the bucket, and its worker doesn't know."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from s3_planes import ATTEMPT, RUN_ID, Halves, MakeSite

from cdui_develop.bucket_stub import Asked, Says, Stub
from codefyui_core.plugin import Busy, Refused, StoredObject
from codefyui_core.testing.hosts import NotesDouble
from codefyui_storage_s3.models import MOST_TAKEN, S3Receipt
from codefyui_storage_s3.naming import mark_of

FOLDER = f"runs/{RUN_ID}/checkpoint"
SMALL, LARGE = b"weights", b"x" * (17 << 20)
SIZES = pytest.mark.parametrize("data", [SMALL, LARGE], ids=["in one piece", "in parts"])


@pytest.fixture
async def halves(site_of: MakeSite, stub_settings: dict[str, object]) -> Halves:
    made: Halves = await site_of(stub_settings, s3_credentials="static")
    return await made.start()


def _kept(stub: Stub) -> dict[str, bytes]:
    """Objects of the run."""
    folder = f"/codefyui/{FOLDER}/"
    return {
        path.removeprefix(folder): data for path, (data, _) in stub.objects.items() if path.startswith(folder)
    }


def _ends_an_upload(asked: Asked) -> bool:
    if f"/{FOLDER}/" not in asked.path:
        return False
    parts = "partNumber" in asked.query
    return (asked.method == "PUT" and not parts) or (asked.method == "POST" and "uploadId" in asked.query)


def _loses(stub: Stub, count: int = 1) -> Callable[[Asked], Says | None]:
    """The first answers to what would end an upload."""
    lost: list[Asked] = []

    def rule(asked: Asked) -> Says | None:
        if not _ends_an_upload(asked) or len(lost) == count:
            return None
        lost.append(asked)
        return stub.lose(asked)

    return rule


@SIZES
async def test_a_file_is_one_object_under_its_name(halves: Halves, stub: Stub, data: bytes) -> None:
    staged, notes = await halves.staged(), NotesDouble()
    stub.rule = _loses(stub)
    async with halves.session(staged) as session:
        with pytest.raises(Busy):
            await halves.publish(session, data, name="best.pt", notes=notes)
        output, receipt = await halves.publish(session, data, name="best.pt", notes=notes)
    stored = await halves.control.accept(halves.given(staged), output, receipt)
    assert stored.relative_path == f"{FOLDER}/best.pt"
    assert _kept(stub) == {"best.pt": data}


@SIZES
async def test_so_it_is_when_the_answer_to_the_next_try_is_lost_too(
    halves: Halves, stub: Stub, data: bytes
) -> None:
    staged, notes = await halves.staged(), NotesDouble()
    stub.rule = _loses(stub, 2)
    async with halves.session(staged) as session:
        for _ in range(2):
            with pytest.raises(Busy):
                await halves.publish(session, data, name="best.pt", notes=notes)
        output, receipt = await halves.publish(session, data, name="best.pt", notes=notes)
    stored = await halves.control.accept(halves.given(staged), output, receipt)
    assert stored.relative_path == f"{FOLDER}/best.pt"
    assert "best-2.pt" not in _kept(stub)


@SIZES
async def test_an_agent_that_was_killed_before_the_answer_came_finds_it_again(
    halves: Halves, stub: Stub, site_of: MakeSite, stub_settings: dict[str, object], data: bytes
) -> None:
    staged, notes = await halves.staged(), NotesDouble()
    async with halves.session(staged) as session:
        await halves.publish(session, data, name="best.pt", notes=notes)
    again: Halves = await site_of(stub_settings)
    await again.agent.start()
    async with again.session(staged) as session:
        output, receipt = await again.publish(session, data, name="best.pt", notes=notes)
    stored = await halves.control.accept(halves.given(staged), output, receipt)
    assert stored.relative_path == f"{FOLDER}/best.pt"
    assert _kept(stub) == {"best.pt": data}


@SIZES
async def test_an_agent_that_was_killed_in_the_try_after_it_finds_it_again(
    halves: Halves, stub: Stub, site_of: MakeSite, stub_settings: dict[str, object], data: bytes
) -> None:
    staged, notes = await halves.staged(), NotesDouble()
    stub.rule = _loses(stub, 2)
    async with halves.session(staged) as session:
        for _ in range(2):
            with pytest.raises(Busy):
                await halves.publish(session, data, name="best.pt", notes=notes)
    again: Halves = await site_of(stub_settings)
    await again.agent.start()
    async with again.session(staged) as session:
        output, receipt = await again.publish(session, data, name="best.pt", notes=notes)
    assert (await halves.control.accept(halves.given(staged), output, receipt)).relative_path == (
        f"{FOLDER}/best.pt"
    )


@SIZES
async def test_another_output_of_that_name_keeps_its_object(halves: Halves, stub: Stub, data: bytes) -> None:
    """With the same bytes, and recorded or not."""
    staged = await halves.staged()
    async with halves.session(staged) as session:
        first, _ = await halves.publish(session, data, name="best.pt", key="1" * 32)
    async with halves.session(staged) as session:  # which doesn't know of the first
        output, receipt = await halves.publish(session, data, name="best.pt", key="2" * 32)
    stored = await halves.control.accept(halves.given(staged), output, receipt)
    assert first.name == output.name
    assert receipt.taken == (f"{FOLDER}/best.pt",)
    assert stored.relative_path == f"{FOLDER}/best-1.pt"
    assert _kept(stub) == {"best.pt": data, "best-1.pt": data}


async def test_a_receipt_that_comes_again_lists_what_it_listed(halves: Halves, stub: Stub) -> None:
    staged, notes = await halves.staged(), NotesDouble()
    stub.rule = _loses(stub)
    async with halves.session(staged) as session:
        with pytest.raises(Busy):
            await halves.publish(session, SMALL, name="best.pt", notes=notes)
        output, receipt = await halves.publish(session, SMALL, name="best.pt", notes=notes)
    given = halves.given(staged)
    once = await halves.control.accept(given, output, receipt)
    assert await halves.control.accept(given, output, receipt) == once, "before it is recorded"
    await halves.host.record(ATTEMPT, once)
    assert await halves.control.accept(given, output, receipt) == once
    assert _kept(stub) == {"best.pt": SMALL}


@pytest.mark.parametrize("torn", [b"", b"wei"])
async def test_what_a_killed_store_has_of_an_upload_is_removed(
    halves: Halves, stub: Stub, torn: bytes
) -> None:
    staged = await halves.staged()
    async with halves.session(staged) as session:
        await halves.publish(session, SMALL, name="best.pt")
    path = f"/codefyui/{FOLDER}/best.pt"
    stub.objects[path] = (torn, {**stub.objects[path][1], "ETag": '"torn"'})
    async with halves.session(staged) as session:
        output, receipt = await halves.publish(session, SMALL, name="best.pt")
    stored = await halves.control.accept(halves.given(staged), output, receipt)
    assert stored.relative_path == f"{FOLDER}/best-1.pt"
    assert _kept(stub) == {"best-1.pt": SMALL}


async def test_a_file_that_reads_arriving_is_found_as_any_other(halves: Halves, stub: Stub) -> None:
    """The core lists it before it asks again."""
    staged, notes = await halves.staged(), NotesDouble()
    stub.rule = _loses(stub)
    async with halves.session(staged) as session:
        with pytest.raises(Busy):
            await halves.publish(session, SMALL, name="best.pt", notes=notes)
        output, receipt = await halves.publish(session, SMALL, name="best.pt", notes=notes)
    waiting = StoredObject(
        key=output.key,
        kind=output.kind,
        name=output.name,
        relative_path=output.relative_path,
        size_bytes=None,
        sha256=None,
    )
    await halves.host.record(ATTEMPT, waiting)
    stored = await halves.control.accept(halves.given(staged), output, receipt)
    assert stored.relative_path == f"{FOLDER}/best.pt"


async def test_a_copy_that_is_listed_stays_even_if_the_first_one_turns_up_later(
    halves: Halves, stub: Stub
) -> None:
    staged = await halves.staged()
    stub.objects[f"/codefyui/{FOLDER}/best.pt"] = (SMALL, {})
    async with halves.session(staged) as session:
        output, receipt = await halves.publish(session, SMALL, name="best.pt")
    given = halves.given(staged)
    stored = await halves.control.accept(given, output, receipt)
    await halves.host.record(ATTEMPT, stored)
    copy = stub.objects[f"/codefyui/{FOLDER}/best-1.pt"]
    stub.objects[f"/codefyui/{FOLDER}/best.pt"] = copy
    assert await halves.control.accept(given, output, receipt) == stored
    assert f"/codefyui/{FOLDER}/best-1.pt" in stub.objects


async def test_only_keys_of_its_name_are_looked_at(halves: Halves, stub: Stub) -> None:
    staged = await halves.staged()
    async with halves.session(staged) as session:
        other, _ = await halves.publish(session, SMALL, name="other.pt")
        output, receipt = await halves.publish(session, SMALL, name="best.pt")
    forged = receipt.model_copy(update={"taken": (f"{FOLDER}/other.pt",), "mark": mark_of(other.key)})
    with pytest.raises(Refused, match="no key"):
        await halves.control.accept(halves.given(staged), output, forged)


async def test_a_receipt_names_a_bounded_number_of_keys(
    site_of: MakeSite, halves: Halves, stub: Stub
) -> None:
    staged = await halves.staged()
    for number in range(MOST_TAKEN + 5):
        name = f"best-{number}.pt" if number else "best.pt"
        stub.objects[f"/codefyui/{FOLDER}/{name}"] = (b"earlier", {})
    async with halves.session(staged) as session:
        _, receipt = await halves.publish(session, SMALL, name="best.pt")
    assert len(receipt.taken) == MOST_TAKEN
    assert receipt.taken[-1] == f"{FOLDER}/best-{MOST_TAKEN + 4}.pt"
    assert S3Receipt.model_validate(receipt.model_dump(mode="json")) == receipt


@pytest.mark.service
@SIZES
async def test_a_real_store_keeps_the_marks(
    site_of: MakeSite, bucket_settings: dict[str, object], data: bytes
) -> None:
    halves = await (await site_of(bucket_settings, s3_credentials="sts")).start()
    staged = await halves.staged()
    async with halves.session(staged) as session:
        await halves.publish(session, data, name="best.pt")
    async with halves.session(staged) as session:  # as after a restart
        output, receipt = await halves.publish(session, data, name="best.pt")
    stored = await halves.control.accept(halves.given(staged), output, receipt)
    assert stored.relative_path == f"{staged.ticket.prefix}{FOLDER}/best.pt"
    assert receipt.key.endswith("best-1.pt")
    with pytest.raises(Refused):
        await halves.control.read(replace(stored, relative_path=receipt.key), None)
