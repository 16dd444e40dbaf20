"""Outputs that come together, whole."""

import asyncio
import contextlib
import errno
import hashlib
import os
from pathlib import Path

import pytest
from sqlalchemy import event, insert, select

from codefyui_core.control.db.tables import runs, uploads
from codefyui_core.control.files import lots
from codefyui_core.control.files.receiving import Receiving
from codefyui_core.errors import BadName, CodefyError
from codefyui_core.plugin import Arriving, Coming

LIMIT = 100_000


class Died(BaseException):
    """The process was killed here."""


BOTH = pytest.mark.parametrize(
    "database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.service)], indirect=True
)


@pytest.fixture
def database_url(request, tmp_path):
    """SQLite; for tests that are marked with ``BOTH``, each kind."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path / 'db' / 'codefyui.db'}"
    return request.getfixturevalue("postgresql").empty_database()


@pytest.fixture
async def receiving(database):
    async with database.begin() as connection:
        values = {column.name: _filler(column) for column in runs.c if not column.nullable}
        await connection.execute(insert(runs), values | {"id": "r1"})
    return Receiving(database, limit_bytes=LIMIT)


def _filler(column):
    return {int: 0, bool: False, float: 0.0}.get(column.type.python_type, "{}")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "models"


@pytest.fixture
def contents():
    """Of files by key; among them one without a byte at each place where that may be a case of its own."""
    sizes = {"a": 0, "b": 5000, "c": 1, "d": 0, "e": 70_000, "f": 0}
    return {key: os.urandom(size) for key, size in sizes.items()}


@pytest.fixture
def coming(folder):
    def coming(contents, names=None):
        return [
            Coming(
                size_bytes=len(data),
                sha256=hashlib.sha256(data).hexdigest(),
                file=Arriving(
                    run_id="r1", key=key, folder=folder, name=(names or {}).get(key, f"deep/{key}.pt")
                ),
            )
            for key, data in contents.items()
        ]

    return coming


async def cut(data, size=1000):
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def agreed():
    """Nothing stands against it."""


@pytest.fixture
def take(receiving, coming):
    async def take(contents, names=None, *, by=None, body=None, agreed=agreed):
        body = cut(b"".join(contents.values())) if body is None else body
        return await (by or receiving).take("r1", coming(contents, names), body, agreed)

    return take


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def lie(contents):
    return {f"deep/{key}.pt": data for key, data in contents.items()}


async def states(database):
    async with database.read() as connection:
        found = await connection.execute(select(uploads.c.item_id, uploads.c.state))
        return {key: state for key, state in found}  # noqa: C416  rows are no pairs to dict


@BOTH
@pytest.mark.parametrize("lot_bytes", [1 << 20, 1000, 1])
async def test_files_that_come_together_are_all_placed(
    lot_bytes, take, contents, folder, receiving, database, monkeypatch
):
    monkeypatch.setattr("codefyui_core.control.files.parcels.LOT_BYTES", lot_bytes)
    arrived = await take(contents)
    assert files(folder) == lie(contents)
    assert [one.relative_path for one in arrived] == list(lie(contents))
    assert [await receiving.arrived("r1", key) for key in contents] == arrived
    assert set((await states(database)).values()) == {"placed"}


async def test_many_files_cost_two_commits(take, database):
    commits = []
    engine = database._engines.writing.sync_engine
    event.listen(engine, "commit", commits.append)
    await take({f"k{n}": os.urandom(n) for n in range(100)})
    assert len(commits) == 2


@pytest.mark.point(43)
@BOTH
async def test_files_whose_answer_was_lost_get_the_same_answer(take, contents, folder):
    first = await take(contents)
    assert await take(contents) == first
    assert files(folder) == lie(contents)


@pytest.mark.point(43)
@pytest.mark.parametrize("dies_in", ["choose", "Writer.write", "sync", "place", "place: each", "settle"])
async def test_a_kill_between_any_two_steps_is_made_good_by_the_next_try(
    dies_in, take, contents, folder, database, monkeypatch
):
    with monkeypatch.context() as patch:
        kill(patch, dies_in)
        with pytest.raises(Died):
            await take(contents)
    after_a_restart = Receiving(database, limit_bytes=LIMIT)
    assert [one.relative_path for one in await take(contents, by=after_a_restart)] == list(lie(contents))
    assert files(folder) == lie(contents)
    assert set((await states(database)).values()) == {"placed"}


@pytest.mark.point(43)
@pytest.mark.parametrize("dies_in", ["choose", "Writer.write", "sync"])
async def test_what_a_kill_left_is_found_when_the_run_is_over(
    dies_in, take, contents, folder, database, monkeypatch
):
    with monkeypatch.context() as patch:
        kill(patch, dies_in)
        with pytest.raises(Died):
            await take(contents)
    await Receiving(database, limit_bytes=LIMIT).forget("r1")
    assert not folder.exists() or files(folder) == {}
    assert await states(database) == {}


@pytest.mark.point(43)
@BOTH
async def test_what_a_kill_left_goes_on_piece_by_piece_too(take, contents, folder, database, monkeypatch):
    with monkeypatch.context() as patch:
        kill(patch, "sync")
        with pytest.raises(Died):
            await take(contents)
    single = Receiving(database, limit_bytes=LIMIT)
    data = contents["b"]
    file = Arriving(run_id="r1", key="b", folder=folder, name="deep/b.pt")
    assert await single.offset(file) == len(data)
    placed = await single.finish(file, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    assert placed.path.read_bytes() == data


def kill(patch, step):
    """After it, or (each) after the first file's part of it."""
    if step == "settle":
        rows = "codefyui_core.control.files.upload_rows.UploadRows"

        async def dies(self, **words):
            raise Died

        patch.setattr(f"{rows}.settle", dies)
        return
    name, _, each = step.partition(": ")
    name = "_is_placed" if each else name
    owner, _, name = name.rpartition(".")
    owner = getattr(lots, owner) if owner else lots
    done = getattr(owner, name)

    def dies_after(*words):
        done(*words)
        raise Died

    patch.setattr(owner, name, dies_after)


async def test_a_file_that_is_linked_but_not_yet_committed_is_never_written_over(
    take, contents, folder, database, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr("codefyui_core.folder_handles.HandleDirectory.unlink", _dies)
        with pytest.raises(Died):
            await take({"b": contents["b"]})
    (folder / "deep/b.pt").write_bytes(b"changed by its owner")
    (arrived,) = await take({"b": contents["b"]}, by=Receiving(database, limit_bytes=LIMIT))
    assert arrived.relative_path == "deep/b-1.pt"
    assert files(folder) == {"deep/b.pt": b"changed by its owner", "deep/b-1.pt": contents["b"]}


def _dies(*words):
    raise Died


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
async def test_files_are_placed_on_a_file_system_without_links_too(
    take, contents, folder, monkeypatch, number
):
    def link(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("codefyui_core.folder_handles.HandleDirectory.link", link)
    folder.joinpath("deep").mkdir(parents=True)
    (folder / "deep/b.pt").write_bytes(b"other")
    assert (await take(contents))[1].relative_path == "deep/b-1.pt"
    assert files(folder)["deep/b.pt"] == b"other"
    assert files(folder)["deep/b-1.pt"] == contents["b"]


async def test_another_file_keeps_its_name_and_the_new_one_gets_a_number(take, contents, folder):
    folder.joinpath("deep").mkdir(parents=True)
    (folder / "deep/b.pt").write_bytes(b"other")
    (folder / "deep/b-1.pt").symlink_to("/etc/passwd")
    (folder / "deep/b-2.pt").mkdir()
    arrived = await take(contents)
    assert arrived[1].relative_path == "deep/b-3.pt"
    assert (folder / "deep/b.pt").read_bytes() == b"other"


async def test_a_name_that_is_taken_while_the_bytes_come_is_never_written_over(take, contents, folder):
    async def body():
        yield b"".join(contents.values())
        folder.joinpath("deep").mkdir(parents=True, exist_ok=True)
        (folder / "deep/b.pt").write_bytes(b"other")
        (folder / "deep/c.pt").write_bytes(contents["c"])

    arrived = await take(contents, body=body())
    assert [one.relative_path for one in arrived[1:3]] == ["deep/b-1.pt", "deep/c.pt"]
    assert files(folder) == lie(contents) | {"deep/b.pt": b"other", "deep/b-1.pt": contents["b"]}


async def test_files_for_one_name_get_numbers_unless_they_are_equal(take, folder):
    contents = {"one": b"1", "two": b"2", "again": b"1"}
    arrived = await take(contents, dict.fromkeys(contents, "a.pt"))
    assert [one.relative_path for one in arrived] == ["a.pt", "a-1.pt", "a.pt"]
    assert files(folder) == {"a.pt": b"1", "a-1.pt": b"2"}


async def test_the_same_content_is_not_stored_twice(take, contents, folder):
    first = await take(contents)
    again = {f"{key}2": data for key, data in contents.items()}
    assert await take(again, {f"{key}2": f"deep/{key}.pt" for key in contents}) == first
    assert files(folder) == lie(contents)


async def test_a_file_that_is_not_what_was_announced_fails_alone(
    receiving, coming, contents, folder, database
):
    announced = coming(contents)
    data = contents["b"][:-1] + bytes([contents["b"][-1] ^ 1])
    answers = await receiving.take("r1", announced, cut(b"".join((contents | {"b": data}).values())), agreed)
    assert [getattr(one, "code", None) for one in answers] == [
        None,
        "upload.mismatch",
        None,
        None,
        None,
        None,
    ]
    assert files(folder) == lie({key: data for key, data in contents.items() if key != "b"})
    assert "b" not in await states(database)


async def test_a_file_that_is_not_wanted_is_passed_over(receiving, coming, contents, folder):
    unwanted = CodefyError("no such kind", code="files.bad_name")
    announced = [
        Coming(size_bytes=one.size_bytes, sha256=one.sha256, file=unwanted) if one.file.key in "ae" else one
        for one in coming(contents)
    ]
    answers = await receiving.take("r1", announced, cut(b"".join(contents.values())), agreed)
    assert answers[0] is answers[4] is unwanted
    assert files(folder) == lie({key: data for key, data in contents.items() if key not in "ae"})


@pytest.mark.parametrize("n_bytes", [0, 4999, 5000, 5001, 60_000, 75_000])
async def test_what_came_whole_before_the_line_broke_is_kept(
    n_bytes, take, contents, folder, database, monkeypatch
):
    monkeypatch.setattr("codefyui_core.control.files.parcels.LOT_BYTES", 3000)

    async def broken():
        async for piece in cut(b"".join(contents.values())[:n_bytes], 999):
            yield piece
        raise ConnectionResetError("the line broke")

    with pytest.raises(ConnectionResetError):
        await take(contents, body=broken())
    kept = {key for key, state in (await states(database)).items() if state == "placed"}
    assert kept == {"a"} | ({"b"} if n_bytes >= 5000 else set()) | ({"c", "d"} if n_bytes > 5000 else set())
    assert not [name for name in files(folder) if name not in {f"deep/{key}.pt" for key in kept}]
    assert set(await states(database)) == kept
    await take(contents)
    assert files(folder) == lie(contents)


@pytest.mark.parametrize(
    ("change", "said"), [(lambda body: body + b"x", "More bytes"), (lambda body: body[:-1], "missing")]
)
async def test_a_body_of_another_size_than_announced_is_refused(change, said, take, contents, folder):
    with pytest.raises(CodefyError, match=said) as refused:
        await take(contents, body=cut(change(b"".join(contents.values()))))
    assert refused.value.code == "request.invalid"
    assert set(files(folder)) <= set(lie(contents))


async def test_two_files_of_one_key_are_refused_before_anything_is_stored(
    receiving, coming, contents, folder
):
    with pytest.raises(CodefyError, match="one key") as refused:
        await receiving.take("r1", coming(contents) * 2, cut(b""), agreed)
    assert refused.value.code == "request.invalid"
    assert not folder.exists()


async def test_nothing_gets_a_name_that_is_not_agreed_to(take, contents, folder, database):
    async def never():
        raise CodefyError("it is over", code="run.attempt_over")

    with pytest.raises(CodefyError, match="it is over"):
        await take(contents, agreed=never)
    assert files(folder) == {}
    assert await states(database) == {}


async def test_a_full_disk_fails_the_files_that_it_does_not_take(
    take, contents, folder, database, monkeypatch
):
    write = os.write

    def full(out, data):
        if len(data) > 1000:
            raise OSError(errno.ENOSPC, "no space left")
        return write(out, data)

    with monkeypatch.context() as patch:
        patch.setattr("codefyui_core.control.files.lots.os.write", full)
        answers = await take(contents, body=cut(b"".join(contents.values()), 10_000))
    assert [getattr(one, "code", None) for one in answers] == [
        None,
        "storage.full",
        None,
        None,
        "storage.full",
        None,
    ]
    assert set(files(folder)) == {f"deep/{key}.pt" for key in "acdf"}
    await take(contents)
    assert files(folder) == lie(contents)


async def test_a_file_that_can_not_be_stored_says_why_and_fails_alone(take, contents, folder):
    folder.mkdir()
    (folder / "file").write_bytes(b"in the way")
    (folder / "link").symlink_to(folder.parent)
    names = {"b": "file/b.pt", "c": "link/c.pt", "d": "file"}
    answers = await take(contents, names)
    assert [type(one) for one in answers[1:3]] == [BadName, BadName]
    assert answers[3].relative_path == "file-1"
    assert not (folder.parent / "c.pt").exists()
    assert (folder / "file").read_bytes() == b"in the way"


async def test_a_parcel_and_a_piece_of_one_of_its_files_take_turns(take, contents, folder, receiving):
    data = contents["e"]
    file = Arriving(run_id="r1", key="e", folder=folder, name="deep/e.pt")

    async def single():
        with contextlib.suppress(CodefyError):  # it is whole, by a parcel
            await receiving.append(file, 0, cut(data))
        return await receiving.finish(file, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())

    parcels = [take(contents), take(dict(reversed(contents.items()))), take(contents)]
    found = await asyncio.gather(*parcels, *(single() for _ in range(3)), return_exceptions=True)
    assert not [one for one in found if isinstance(one, BaseException)]
    assert files(folder) == lie(contents)


async def test_a_begun_upload_that_comes_again_whole_is_whole(take, contents, folder, receiving):
    file = Arriving(run_id="r1", key="b", folder=folder, name="deep/b.pt")
    await receiving.append(file, 0, cut(b"other bytes" * 100))
    await take(contents)
    assert files(folder) == lie(contents)


async def test_another_file_under_a_key_that_is_placed_gets_the_answer_of_the_first(take, contents, folder):
    (first,) = await take({"b": contents["b"]})
    assert await take({"b": b"other"}) == [first]
    assert files(folder) == lie({"b": contents["b"]})


async def test_a_request_that_is_cut_leaves_nothing_that_is_not_found_later(
    take, contents, folder, receiving
):
    waiting = asyncio.Event()

    async def stalled():
        yield b"".join(contents.values())[:5001]
        waiting.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(take(contents, body=stalled()))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await take(contents)
    assert files(folder) == lie(contents)


def test_every_file_is_synced_before_it_gets_its_name_and_every_folder_after(tmp_path, monkeypatch):
    steps = []
    monkeypatch.setattr(
        lots.os, "fsync", lambda out: steps.append(("sync", Path(f"/proc/self/fd/{out}").readlink().name))
    )
    link = os.link

    def linked(source, target, **words):
        steps.append(("link", source))
        link(source, target, **words)

    monkeypatch.setattr("codefyui_core.folder_handles.os.link", linked)
    wholes = [
        lots.Whole(
            file=Arriving(run_id="r1", key=str(n), folder=tmp_path / "models", name=f"deep/{n}.pt"),
            size_bytes=1,
            sha256=hashlib.sha256(b"x").hexdigest(),
        )
        for n in range(3)
    ]
    lots.choose(wholes)
    writer = lots.Writer([(1, whole) for whole in wholes])
    writer.write([b"xxx"])
    lots.sync(wholes)
    assert lots.place(wholes) == []
    for whole in wholes:
        assert steps.index(("sync", whole.hidden)) < steps.index(("link", whole.hidden))
    assert steps[-2:] == [("sync", "deep"), ("sync", "models")]
