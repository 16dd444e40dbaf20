"""Outputs that arrive in pieces."""

import asyncio
import errno
import gc
import hashlib
import threading
from dataclasses import replace

import pytest
from sqlalchemy import insert, select, update

from codefyui_core.control.db.tables import artifacts, runs, uploads
from codefyui_core.control.files.receiving import Receiving
from codefyui_core.errors import BadName, CodefyError
from codefyui_core.plugin import Arriving

DATA = bytes(range(256)) * 40
SHA = hashlib.sha256(DATA).hexdigest()
LIMIT = 100_000


class Died(BaseException):
    """The process was killed here."""


async def pieces(data, size=1000):
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.fixture
async def receiving(database):
    async with database.begin() as connection:
        values = {column.name: _filler(column) for column in runs.c if not column.nullable}
        await connection.execute(insert(runs), values | {"id": "r1"})
    return Receiving(database, limit_bytes=LIMIT)


def _filler(column):
    return {int: 0, bool: False, float: 0.0}.get(column.type.python_type, "{}")


@pytest.fixture
def item(tmp_path):
    return Arriving(run_id="r1", key="a1", folder=tmp_path / "models", name="deep/best.pt")


def files(item):
    return sorted(str(path.relative_to(item.folder)) for path in item.folder.rglob("*") if path.is_file())


async def send(receiving, item, data=DATA):
    await receiving.append(item, 0, pieces(data))
    return await receiving.finish(item, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


async def state(database, key="a1"):
    async with database.read() as connection:
        return (await connection.execute(select(uploads.c.state).where(uploads.c.item_id == key))).scalar()


async def test_a_broken_upload_goes_on_where_it_stopped(receiving, item):
    async def breaks():
        yield DATA[:3000]
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await receiving.append(item, 0, breaks())
    assert await receiving.offset(item) == 3000
    with pytest.raises(CodefyError) as wrong:
        await receiving.append(item, 0, pieces(DATA))
    assert wrong.value.code == "upload.offset"
    assert await receiving.append(item, 3000, pieces(DATA[3000:])) == len(DATA)
    placed = await receiving.finish(item, size_bytes=len(DATA), sha256=SHA)
    assert (placed.path.read_bytes(), placed.relative_path) == (DATA, "deep/best.pt")
    assert files(item) == ["deep/best.pt"]


@pytest.mark.point(43)
async def test_a_finish_whose_answer_was_lost_gets_the_same_answer(receiving, item):
    first = await send(receiving, item)
    assert await receiving.finish(item, size_bytes=len(DATA), sha256=SHA) == first
    assert await receiving.offset(item) == len(DATA)
    assert files(item) == ["deep/best.pt"]


@pytest.mark.point(43)
async def test_a_crash_between_the_rename_and_the_commit_makes_no_second_copy(receiving, item, database):
    first = await send(receiving, item)
    async with database.begin() as connection:
        await connection.execute(update(uploads).values(state="chosen"))
    again = await Receiving(database, limit_bytes=LIMIT).finish(item, size_bytes=len(DATA), sha256=SHA)
    assert again == first
    assert await state(database) == "placed"
    assert files(item) == ["deep/best.pt"]


@pytest.mark.point(43)
async def test_a_crash_between_the_commit_and_the_rename_is_made_good(receiving, item, database, monkeypatch):
    def dies(item, name):
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr("codefyui_core.control.files.parts.link", dies)
        with pytest.raises(Died):
            await send(receiving, item)
    assert await state(database) == "chosen"
    placed = await Receiving(database, limit_bytes=LIMIT).finish(item, size_bytes=len(DATA), sha256=SHA)
    assert placed.path.read_bytes() == DATA
    assert files(item) == ["deep/best.pt"]


async def test_another_file_keeps_its_name_and_the_new_one_gets_a_number(receiving, item):
    item.folder.joinpath("deep").mkdir(parents=True)
    (item.folder / "deep" / "best.pt").write_bytes(b"other")
    (item.folder / "deep" / "best-1.pt").symlink_to("/etc/passwd")
    placed = await send(receiving, item)
    assert placed.relative_path == "deep/best-2.pt"
    assert (item.folder / "deep" / "best.pt").read_bytes() == b"other"


async def test_the_same_content_is_not_stored_twice(receiving, item, tmp_path):
    first = await send(receiving, item)
    second = Arriving(run_id="r1", key="a2", folder=item.folder, name=item.name)
    assert await send(receiving, second) == first
    assert files(item) == ["deep/best.pt"]


async def test_what_arrived_otherwise_than_it_was_sent_is_dropped(receiving, item):
    await receiving.append(item, 0, pieces(DATA[:-1]))
    with pytest.raises(CodefyError) as wrong:
        await receiving.finish(item, size_bytes=len(DATA), sha256=SHA)
    assert wrong.value.code == "upload.mismatch"
    assert await receiving.offset(item) == 0
    assert (await send(receiving, item)).path.read_bytes() == DATA


async def test_a_file_over_the_limit_is_refused_and_nothing_of_it_kept(receiving, item, database):
    with pytest.raises(CodefyError) as wrong:
        await receiving.append(item, 0, pieces(bytes(LIMIT + 1), 60_000))
    assert wrong.value.code == "request.too_large"
    assert (files(item), await state(database)) == ([], None)


async def test_a_body_without_an_end_is_cut_soon(receiving, item):
    n_bytes = 0

    async def endless():
        nonlocal n_bytes
        while True:
            n_bytes += 65_536
            yield bytes(65_536)

    with pytest.raises(CodefyError, match="CODEFYUI_MAX_UPLOAD_SIZE"):
        await receiving.append(item, 0, endless())
    assert n_bytes < LIMIT + (2 << 20)
    assert files(item) == []


async def test_what_this_process_did_not_see_arrive_is_hashed_at_the_end(receiving, item, database):
    await receiving.append(item, 0, pieces(DATA[:5000]))
    after_a_restart = Receiving(database, limit_bytes=LIMIT)
    assert await after_a_restart.append(item, 5000, pieces(DATA[5000:])) == len(DATA)
    placed = await after_a_restart.finish(item, size_bytes=len(DATA), sha256=SHA)
    assert placed.path.read_bytes() == DATA


async def test_bytes_that_changed_between_two_pieces_are_found_out(receiving, item, database):
    await receiving.append(item, 0, pieces(DATA[:5000]))
    (part,) = item.folder.glob(".cdui-*.part")
    part.write_bytes(bytes(5000))
    after_a_restart = Receiving(database, limit_bytes=LIMIT)
    await after_a_restart.append(item, 5000, pieces(DATA[5000:]))
    with pytest.raises(CodefyError) as wrong:
        await after_a_restart.finish(item, size_bytes=len(DATA), sha256=SHA)
    assert wrong.value.code == "upload.mismatch"


async def test_without_a_hash_it_is_what_came_to_this_process(receiving, item):
    await receiving.append(item, 0, pieces(DATA[:5000]))
    await receiving.append(item, 5000, pieces(DATA[5000:]))
    placed = await receiving.finish(item, size_bytes=len(DATA), sha256=None)
    assert (placed.sha256, placed.path.read_bytes()) == (SHA, DATA)
    assert await receiving.finish(item, size_bytes=len(DATA), sha256=None) == placed


async def test_without_a_hash_a_file_of_another_size_is_dropped(receiving, item):
    await receiving.append(item, 0, pieces(DATA))
    with pytest.raises(CodefyError) as wrong:
        await receiving.finish(item, size_bytes=len(DATA) + 1, sha256=None)
    assert wrong.value.code == "upload.mismatch"
    assert files(item) == []


async def test_what_another_process_took_in_needs_a_hash(receiving, item, database):
    await receiving.append(item, 0, pieces(DATA[:5000]))
    after_a_restart = Receiving(database, limit_bytes=LIMIT)
    await after_a_restart.append(item, 5000, pieces(DATA[5000:]))
    with pytest.raises(CodefyError, match="Give the SHA-256") as wrong:
        await after_a_restart.finish(item, size_bytes=len(DATA), sha256=None)
    assert wrong.value.code == "upload.needs_hash"
    placed = await after_a_restart.finish(item, size_bytes=len(DATA), sha256=SHA)
    assert placed.path.read_bytes() == DATA


async def test_after_a_write_that_failed_the_hash_is_not_that_of_what_should_be_there(
    receiving, item, monkeypatch
):
    def full(part, lot, *, is_last):
        raise OSError(errno.ENOSPC, "no space left")

    await receiving.append(item, 0, pieces(DATA[:5000]))
    with monkeypatch.context() as patch:
        patch.setattr("codefyui_core.control.files.parts.Part.write", full)
        with pytest.raises(CodefyError):
            await receiving.append(item, 5000, pieces(DATA[5000:]))
    await receiving.append(item, 5000, pieces(DATA[5000:][::-1]))
    with pytest.raises(CodefyError) as wrong:
        await receiving.finish(item, size_bytes=len(DATA), sha256=None)
    assert wrong.value.code == "upload.needs_hash"


@pytest.mark.parametrize("offset", [1, 4999, 5001, 10_000])
async def test_a_piece_that_does_not_fit_is_refused_with_the_place_to_go_on(receiving, item, offset):
    await receiving.append(item, 0, pieces(DATA[:5000]))
    with pytest.raises(CodefyError, match="goes on at byte 5000") as wrong:
        await receiving.append(item, offset, pieces(DATA[offset:]))
    assert wrong.value.code == "upload.offset"
    await receiving.append(item, 5000, pieces(DATA[5000:]))
    assert (await receiving.finish(item, size_bytes=len(DATA), sha256=SHA)).path.read_bytes() == DATA


async def test_a_full_disk_keeps_what_is_there(receiving, item, monkeypatch):
    await receiving.append(item, 0, pieces(DATA[:5000]))

    def full(part, lot, *, is_last):
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr("codefyui_core.control.files.parts.Part.write", full)
        with pytest.raises(CodefyError) as wrong:
            await receiving.append(item, 5000, pieces(DATA[5000:]))
    assert wrong.value.code == "storage.full"
    await receiving.append(item, 5000, pieces(DATA[5000:]))
    assert (await receiving.finish(item, size_bytes=len(DATA), sha256=SHA)).path.read_bytes() == DATA


async def test_a_line_that_breaks_while_the_disk_is_full_leaves_no_error_that_nobody_asked_for(
    receiving, item, monkeypatch
):
    unasked = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: unasked.append(about))

    def full(part, lot, *, is_last):
        raise OSError(errno.ENOSPC, "no space left")

    async def breaking():
        yield b"a piece"
        raise ConnectionResetError

    monkeypatch.setattr("codefyui_core.control.files.parts.Part.write", full)
    with pytest.raises(ConnectionResetError):
        await receiving.append(item, 0, breaking())
    gc.collect()
    await asyncio.sleep(0)
    assert unasked == []


async def test_a_piece_of_a_file_that_is_placed_leaves_nothing_behind(receiving, item):
    await send(receiving, item)
    with pytest.raises(CodefyError) as wrong:
        await receiving.append(item, 0, pieces(DATA))
    assert wrong.value.code == "upload.exists"
    assert files(item) == ["deep/best.pt"]


async def test_many_at_once_are_all_placed(receiving, item, tmp_path):
    folder = tmp_path / "many"
    many = [Arriving(run_id="r1", key=f"k{n}", folder=folder, name=f"{n}.pt") for n in range(40)]
    placed = await asyncio.gather(*(send(receiving, one, DATA + one.key.encode()) for one in many))
    assert [one.path.read_bytes() for one in placed] == [DATA + one.key.encode() for one in many]


async def test_uploads_over_slow_lines_hold_no_thread_and_nobody_up(receiving, item, tmp_path):
    go_on = asyncio.Event()

    async def slow():
        yield DATA[:100]
        await go_on.wait()
        yield DATA[100:]

    before = threading.active_count()
    slow_ones = [Arriving(run_id="r1", key=f"s{n}", folder=tmp_path / "slow", name=f"{n}") for n in range(60)]
    waiting = [asyncio.create_task(receiving.append(one, 0, slow())) for one in slow_ones]
    assert (await send(receiving, item)).path.read_bytes() == DATA
    assert threading.active_count() - before < 20
    assert not any(one.done() for one in waiting)
    go_on.set()
    assert await asyncio.gather(*waiting) == [len(DATA)] * 60


async def test_a_run_that_is_gone_fails_its_own_files_alone(receiving, item, tmp_path):
    ghost = Arriving(run_id="gone", key="k", folder=tmp_path / "ghost", name="x.pt")
    outcomes = await asyncio.gather(
        send(receiving, ghost), send(receiving, item), send(receiving, ghost), return_exceptions=True
    )
    assert [isinstance(one, Exception) for one in outcomes] == [True, False, True]


async def test_what_was_dropped_is_gone_and_what_is_placed_stays(receiving, item, database):
    await receiving.append(item, 0, pieces(DATA))
    await receiving.forget(item.run_id)
    assert (files(item), await state(database)) == ([], None)
    with pytest.raises(CodefyError) as wrong:
        await receiving.finish(item, size_bytes=len(DATA), sha256=SHA)
    assert wrong.value.code == "upload.not_found"
    placed = await send(receiving, item)
    await receiving.forget(item.run_id)
    assert placed.path.exists()
    with pytest.raises(CodefyError, match="here already"):
        await receiving.append(item, 0, pieces(DATA))


@pytest.mark.parametrize("name", ["../x.pt", "/etc/x", "a\0b", "deep/../../x", "", "con.txt"])
def test_hostile_names_are_refused(tmp_path, name):
    with pytest.raises(BadName):
        Arriving(run_id="r1", key="a1", folder=tmp_path, name=name)


async def test_a_link_below_the_folder_is_not_followed(receiving, item, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    item.folder.mkdir()
    (item.folder / "deep").symlink_to(outside)
    await receiving.append(item, 0, pieces(DATA))
    with pytest.raises(BadName):
        await receiving.finish(item, size_bytes=len(DATA), sha256=SHA)
    assert list(outside.iterdir()) == []


# ---------------------------------------------------------------- without a row of an artifact


async def listed(database, key, state):
    values = {column.name: _filler(column) for column in artifacts.c if not column.nullable}
    row = values | {"run_id": "r1", "artifact_id": key, "state": state}
    async with database.begin() as connection:
        await connection.execute(insert(artifacts), row)


async def test_placed_files_that_no_artifact_has_are_known(receiving, database, item):
    for number, state in enumerate((None, "on_worker", "stored")):
        file = replace(item, key=f"k{number}", name=f"deep/{number}.pt")
        await send(receiving, file, DATA + bytes([number]))
        if state is not None:
            await listed(database, file.key, state)
    await receiving.append(replace(item, key="half"), 0, pieces(DATA))
    found = await receiving.unlisted("r1")
    assert [(file.key, file.name, file.folder) for file, _ in found] == [
        ("k0", "deep/0.pt", item.folder),
        ("k1", "deep/1.pt", item.folder),
    ]
    assert [arrived.path.read_bytes()[-1] for _, arrived in found] == [0, 1]


@pytest.mark.point(43)
async def test_a_file_that_got_its_name_before_a_crash_is_not_forgotten(
    receiving, database, item, monkeypatch
):
    keep = receiving._rows.keep

    async def dies(file, state, values):
        if state == "placed":
            raise Died
        await keep(file, state, values)

    monkeypatch.setattr(receiving._rows, "keep", dies)
    with pytest.raises(Died):
        await send(receiving, item)
    assert await state(database) == "chosen"
    again = Receiving(database, limit_bytes=LIMIT)
    await again.forget("r1")
    assert files(item) == ["deep/best.pt"]
    ((file, arrived),) = await again.unlisted("r1")
    assert (file.key, arrived.sha256) == ("a1", SHA)


async def test_forgetting_waits_for_a_file_that_is_being_placed(receiving, item, monkeypatch):
    placing, gate = asyncio.Event(), asyncio.Event()
    keep = receiving._rows.keep

    async def slow(file, state, values):
        if state == "placed":
            placing.set()
            await gate.wait()
        await keep(file, state, values)

    monkeypatch.setattr(receiving._rows, "keep", slow)
    sending = asyncio.create_task(send(receiving, item))
    await placing.wait()
    forgetting = asyncio.create_task(receiving.forget("r1"))
    await asyncio.sleep(0)
    gate.set()
    await sending
    await forgetting
    assert files(item) == ["deep/best.pt"]
    assert [file.key for file, _ in await receiving.unlisted("r1")] == ["a1"]
