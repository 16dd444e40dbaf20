"""Outputs of one name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from s3_planes import RUN_ID, Halves, MakeSite

from cdui_develop.bucket_stub import Asked, Says, Stub, error
from codefyui_core.plugin import Busy, Refused
from codefyui_core.testing.hosts import NotesDouble
from codefyui_storage_s3.naming import Names, is_named_after, numbered

FOLDER = f"runs/{RUN_ID}/checkpoint"


@pytest.mark.parametrize(
    ("number", "key"),
    [(0, "runs/1/checkpoint/a.b.pt"), (1, "runs/1/checkpoint/a.b-1.pt"), (12, "runs/1/checkpoint/a.b-12.pt")],
)
def test_a_number_stands_before_the_suffix(number: int, key: str) -> None:
    assert numbered("runs/1/checkpoint/a.b.pt", number) == key


@pytest.mark.parametrize(
    "key",
    [
        "runs/1/checkpoint/b.pt",
        "runs/1/checkpoint/a-0.pt",
        "runs/1/checkpoint/a-x.pt",
        "runs/1/checkpoint/a-1.bin",
        "runs/1/a-1.pt",
        "runs/2/checkpoint/a.pt",
        "runs/1/checkpoint/a-1.pt/../../../2/x",
        "runs/1/checkpoint/a-1.pt\n",
        "",
    ],
)
def test_a_key_of_something_else_is_none_of_an_outputs_keys(key: str) -> None:
    assert not is_named_after(key, "runs/1/checkpoint/a.pt")


@given(
    name=st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1),
    number=st.integers(0, 99_999),
)
def test_a_numbered_key_is_recognized(name: str, number: int) -> None:
    if name in {".", ".."} or name.endswith("."):
        return
    base = f"runs/1/checkpoint/{name}"
    assert is_named_after(numbered(base, number), base)


def test_outputs_of_one_session_get_a_key_each_and_keep_it() -> None:
    names = Names()
    assert next(names.for_output("a.pt", "one")) == ("a.pt", False)
    assert next(names.for_output("a.pt", "two")) == ("a-1.pt", False)
    assert next(names.for_output("a.pt", "one")) == ("a.pt", False), "nobody knows yet what is there"
    names.stored("a.pt")
    assert next(names.for_output("a.pt", "one")) == ("a.pt", True)
    tries = names.for_output("a.pt", "three")
    key, _ = next(tries)
    names.taken(key)
    assert next(tries) == ("a-3.pt", False)


def test_an_upload_that_was_begun_goes_on_under_its_key_unless_another_has_it_by_now() -> None:
    names = Names()
    assert next(names.for_output("a.pt", "one", "a-5.pt")) == ("a-5.pt", False)
    assert next(names.for_output("a.pt", "two", "a-5.pt")) == ("a.pt", False)


async def test_two_outputs_of_one_name_are_two_objects(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub
) -> None:
    halves: Halves = await (await site_of(stub_settings)).start()
    staged = await halves.staged()
    async with halves.session(staged) as session:
        found = []
        for key, data in (("1" * 32, b"first"), ("2" * 32, b"second")):
            output, receipt = await halves.publish(session, data, key=key, name="best.pt")
            found.append(await halves.control.accept(halves.given(staged), output, receipt))
    assert len({one.relative_path for one in found}) == 2
    for stored, data in zip(found, (b"first", b"second"), strict=True):
        assert stub.objects[f"/codefyui/{stored.relative_path}"][0] == data


@pytest.mark.parametrize("size", [10, 17 << 20])
async def test_what_an_earlier_process_put_there_is_not_written_over(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub, size: int
) -> None:
    halves: Halves = await (await site_of(stub_settings)).start()
    staged = await halves.staged()
    stub.objects[f"/codefyui/{FOLDER}/best.pt"] = (b"earlier", {})
    stored = await halves.stored(staged, b"x" * size, name="best.pt")
    assert stored.relative_path == f"{FOLDER}/best-1.pt"
    assert stub.objects[f"/codefyui/{FOLDER}/best.pt"][0] == b"earlier"


async def test_a_store_that_does_not_know_conditions_gets_the_file_without(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub
) -> None:
    def rule(asked: Asked) -> Says | None:
        return error("NotImplemented", 501) if "if-none-match" in asked.headers else None

    stub.rule = rule
    halves: Halves = await (await site_of(stub_settings)).start()
    stored = await halves.stored(await halves.staged(), b"weights", name="best.pt")
    assert stored.relative_path == f"{FOLDER}/best.pt"


async def test_a_receipt_for_another_outputs_key_is_refused(
    site_of: MakeSite, stub_settings: dict[str, object]
) -> None:
    halves: Halves = await (await site_of(stub_settings)).start()
    staged = await halves.staged()
    async with halves.session(staged) as session:
        output, receipt = await halves.publish(session, b"weights", name="best.pt")
    forged = receipt.model_copy(update={"key": f"{FOLDER}/other.pt"})
    with pytest.raises(Refused, match="no key"):
        await halves.control.accept(halves.given(staged), output, forged)


async def test_a_later_try_writes_over_nothing_that_an_earlier_process_put_there(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub
) -> None:
    halves: Halves = await (await site_of(stub_settings)).start()
    staged = await halves.staged()
    stub.objects[f"/codefyui/{FOLDER}/best.pt"] = (b"earlier", {})
    notes = NotesDouble()
    failed: list[Asked] = []

    def rule(asked: Asked) -> Says | None:
        if "partNumber" in asked.query and not failed:
            failed.append(asked)
            return error("SlowDown", 503)
        return None

    stub.rule = rule
    async with halves.session(staged) as session:
        with pytest.raises(Busy):
            await halves.publish(session, b"x" * (17 << 20), name="best.pt", notes=notes)
        _, receipt = await halves.publish(session, b"x" * (17 << 20), name="best.pt", notes=notes)
    assert receipt.key == f"{FOLDER}/best-1.pt"
    assert stub.objects[f"/codefyui/{FOLDER}/best.pt"][0] == b"earlier"
