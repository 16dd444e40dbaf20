"""Files taken in: names, sizes, what is there already."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codefyui_core.control.files.uploads import Uploads
from codefyui_core.errors import CodefyError
from codefyui_core.files import Family


@pytest.fixture
def store(tmp_path: Path) -> Uploads:
    return Uploads(family=Family.FILES, folder=tmp_path / "files", limit_bytes=100)


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_a_file_is_stored_with_its_hash(store: Uploads) -> None:
    stored = await store.store("a.csv", chunks(b"x,y\n", b"1,2\n"), overwrite=False)
    assert stored == {
        "name": "a.csv",
        "size_bytes": 8,
        "sha256": hashlib.sha256(b"x,y\n1,2\n").hexdigest(),
        "replaced": False,
    }
    assert (store.folder / "a.csv").read_bytes() == b"x,y\n1,2\n"


async def test_the_same_content_again_writes_nothing(store: Uploads) -> None:
    await store.store("a.csv", chunks(b"1"), overwrite=False)
    before = (store.folder / "a.csv").stat()
    again = await store.store("a.csv", chunks(b"1"), overwrite=False)
    after = (store.folder / "a.csv").stat()
    assert not again["replaced"]
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


async def test_other_content_under_a_taken_name_needs_overwrite(store: Uploads) -> None:
    await store.store("a.csv", chunks(b"1"), overwrite=False)
    with pytest.raises(CodefyError) as refused:
        await store.store("a.csv", chunks(b"2"), overwrite=False)
    assert refused.value.code == "upload.exists"
    assert (store.folder / "a.csv").read_bytes() == b"1"
    assert (await store.store("a.csv", chunks(b"2"), overwrite=True))["replaced"]
    assert (store.folder / "a.csv").read_bytes() == b"2"


async def test_a_body_over_the_limit_is_cut_and_leaves_nothing(store: Uploads) -> None:
    with pytest.raises(CodefyError) as refused:
        await store.store("a.csv", chunks(b"x" * 60, b"y" * 60), overwrite=False)
    assert refused.value.code == "request.too_large"
    assert list(store.folder.iterdir()) == []


async def test_a_line_that_breaks_leaves_nothing(store: Uploads) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await store.store("a.csv", broken(), overwrite=False)
    assert list(store.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("C:\\data\\a.csv", "a.csv"),
        ("../../a.csv", "a.csv"),
        ("e\u0301.csv", "\u00e9.csv"),
        ("a b.TXT", "a b.TXT"),
    ],
)
def test_only_the_last_part_of_a_name_counts_and_accents_are_composed(
    store: Uploads, given: str, kept: str
) -> None:
    assert store.name_of(given) == kept


@pytest.mark.parametrize(
    "given", [None, "", "..", ".", "a\0.csv", "con.csv", "a" * 300 + ".csv", 'a".csv', "a?.csv"]
)
def test_names_that_no_system_can_hold_are_refused(store: Uploads, given: str | None) -> None:
    with pytest.raises(CodefyError) as refused:
        store.name_of(given)
    assert refused.value.code in {"upload.bad_name", "upload.bad_type"}


def test_other_kinds_of_files_are_refused(store: Uploads) -> None:
    with pytest.raises(CodefyError) as refused:
        store.name_of("a.exe")
    assert refused.value.code == "upload.bad_type"


async def test_listing_finding_and_deleting(store: Uploads) -> None:
    await store.store("b.csv", chunks(b"1"), overwrite=False)
    await store.store("a.csv", chunks(b"22"), overwrite=False)
    assert [(row["name"], row["size_bytes"]) for row in store.list()] == [("a.csv", 2), ("b.csv", 1)]
    store.delete("a.csv")
    with pytest.raises(CodefyError) as gone, store.open("a.csv"):
        pass
    assert gone.value.code == "upload.not_found"


def test_a_link_out_of_the_folder_is_not_followed(store: Uploads, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("secret")
    store.folder.mkdir()
    (store.folder / "link.csv").symlink_to(tmp_path / "secret.csv")
    with pytest.raises(CodefyError), store.open("link.csv"):
        pass
