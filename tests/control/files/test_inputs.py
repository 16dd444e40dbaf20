"""Inputs of runs: found, hashed as they are now, remembered while they stay the same."""

import asyncio
import hashlib
import os
import threading
import unicodedata

import pytest

from codefyui_core.control.files import inputs as module
from codefyui_core.control.files.inputs import Inputs
from codefyui_core.errors import BadName, Busy, Refused
from codefyui_core.files import Family, Folders, sha256_of_open
from codefyui_core.plugin.storage import InputItem
from codefyui_core.plugin.views import FileRole, FileSource, FileUse, RunFiles, RunStatus, RunView

COMPOSED = unicodedata.normalize("NFC", "\u00e9.csv")
DECOMPOSED = unicodedata.normalize("NFD", "\u00e9.csv")


class Hashing:
    """Hashes, and tells what it hashed. ``meanwhile`` happens while it does."""

    def __init__(self):
        self.count = 0
        self.at_once = self.most = 0
        self.meanwhile = lambda: None
        self._lock = threading.Lock()

    def __call__(self, file):
        with self._lock:
            self.count += 1
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        self.meanwhile()
        found = sha256_of_open(file)
        with self._lock:
            self.at_once -= 1
        return found


@pytest.fixture
def hashing():
    return Hashing()


@pytest.fixture
def inputs(tmp_path, hashing):
    (tmp_path / "files").mkdir()
    return Inputs(Folders(root=tmp_path), limit_bytes=1000, hash_open=hashing)


def upload(name, role=FileRole.READS, source=FileSource.UPLOAD, family=Family.FILES):
    return FileUse(
        node_id="n", node_type="T", param="path", role=role, source=source, family=family, value=name
    )


def run(*uses):
    files = RunFiles(uses=tuple(uses), uses_files=True)
    return RunView(id="r", name="r", status=RunStatus.QUEUED, files=files)


def sha(data):
    return hashlib.sha256(data).hexdigest()


@pytest.mark.spec("transfer/inputs-named-by-sha256-at-assignment")
async def test_each_file_is_named_by_what_it_holds_when_it_is_asked_for(inputs, tmp_path):
    file = tmp_path / "files" / "a.csv"
    file.write_bytes(b"at submit")
    submitted = run(upload("a.csv"), upload("a.csv"))
    file.write_bytes(b"at assignment")
    (item,) = await inputs.of(submitted)
    assert item == InputItem(sha256=sha(b"at assignment"), size_bytes=13, family=Family.FILES, name="a.csv")
    assert inputs.path(item) == file


async def test_a_file_that_stays_the_same_is_hashed_once_and_one_that_changes_again(
    inputs, tmp_path, hashing
):
    file = tmp_path / "files" / "a.csv"
    file.write_bytes(b"one")
    for _ in range(3):
        await inputs.of(run(upload("a.csv")))
    assert hashing.count == 1
    before = file.stat()
    file.write_bytes(b"two")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    (item,) = await inputs.of(run(upload("a.csv")))
    assert (item.sha256, hashing.count) == (sha(b"two"), 2)


async def test_a_file_that_changes_while_it_is_hashed_is_hashed_again(inputs, tmp_path, hashing):
    file = tmp_path / "files" / "a.csv"
    file.write_bytes(b"one")

    def change():
        if hashing.count == 1:
            file.write_bytes(b"two and more")

    hashing.meanwhile = change
    (item,) = await inputs.of(run(upload("a.csv")))
    assert (item.sha256, item.size_bytes, hashing.count) == (sha(b"two and more"), 12, 2)


async def test_a_file_that_never_stops_changing_holds_the_run_back(inputs, tmp_path, hashing):
    file = tmp_path / "files" / "a.csv"
    file.write_bytes(b"")

    def grow():
        with file.open("ab") as out:
            out.write(b"x")

    hashing.meanwhile = grow
    with pytest.raises(Busy) as busy:
        await inputs.of(run(upload("a.csv")))
    assert busy.value.retry_after_s


async def test_few_files_are_hashed_at_once_whoever_asks(inputs, tmp_path, hashing):
    names = [f"{n}.csv" for n in range(8)]
    for name in names:
        (tmp_path / "files" / name).write_text(name)
    both = threading.Barrier(module.AT_ONCE, timeout=10)
    hashing.meanwhile = both.wait
    await asyncio.gather(
        *(inputs.of(run(*(upload(name) for name in part))) for part in (names[:4], names[4:]))
    )
    assert (hashing.count, hashing.most) == (8, module.AT_ONCE)


async def test_hashes_are_forgotten_in_the_order_of_their_last_use(inputs, tmp_path, hashing, monkeypatch):
    monkeypatch.setattr(module, "REMEMBERED", 2)
    for name in ("a", "b", "c"):
        (tmp_path / "files" / name).touch()
    for name in ("a", "b", "a", "c", "a", "b"):
        await inputs.of(run(upload(name)))
    assert hashing.count == 4  # a, b, c, and b once more


async def test_a_file_that_is_gone_is_named_with_its_node(inputs):
    with pytest.raises(Refused, match=r"a\.csv that node n reads isn't here any more"):
        await inputs.of(run(upload("a.csv")))


async def test_files_that_have_grown_over_the_limit_are_refused_when_the_run_is_sent(inputs, tmp_path):
    for name in ("a.csv", "b.csv"):
        (tmp_path / "files" / name).write_bytes(b"x" * 501)
    assert len(await inputs.of(run(upload("a.csv"), upload("./a.csv")))) == 1
    with pytest.raises(Refused, match="CODEFYUI_TRANSFER_MAX_INPUT_BYTES"):
        await inputs.of(run(upload("a.csv"), upload("b.csv")))


async def test_what_a_run_writes_or_reads_elsewhere_is_no_input(inputs):
    uses = (
        upload("m.pt", role=FileRole.WRITES, source=FileSource.OUTPUT),
        upload("data/samples/x.csv", source=FileSource.BUNDLED),
        upload("/else/x.csv", source=FileSource.OTHER_PATH),
    )
    assert await inputs.of(run(*uses)) == ()


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(("there", "asked"), [(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)])
async def test_either_form_of_a_name_finds_the_file_and_it_keeps_the_graphs_name(
    inputs, tmp_path, there, asked
):
    (tmp_path / "files" / there).write_bytes(b"x")
    (item,) = await inputs.of(run(upload(asked)))
    assert (item.name, item.sha256) == (asked, sha(b"x"))
    assert inputs.path(item).name == there


async def test_two_files_whose_names_differ_in_form_alone_are_two(inputs, tmp_path):
    (tmp_path / "files" / COMPOSED).write_bytes(b"composed")
    (tmp_path / "files" / DECOMPOSED).write_bytes(b"decomposed")
    items = await inputs.of(run(upload(COMPOSED), upload(DECOMPOSED)))
    assert {item.name: item.sha256 for item in items} == {
        COMPOSED: sha(b"composed"),
        DECOMPOSED: sha(b"decomposed"),
    }


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a\\..\\secret", "link.csv", "linked/secret"])
async def test_nothing_outside_is_read(inputs, tmp_path, hashing, name):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "files" / "link.csv").symlink_to(tmp_path / "secret")
    (tmp_path / "files" / "linked").symlink_to(tmp_path)
    with pytest.raises(Refused):
        await inputs.of(run(upload(name)))
    assert hashing.count == 0


# ---------------------------------------------------------------- from earlier runs


def earlier(value):
    return upload(value, source=FileSource.ARTIFACT, family=Family.MODELS)


async def test_what_an_earlier_run_left_travels_under_its_place(inputs, tmp_path):
    file = tmp_path / "runs" / "r1" / "checkpoint" / "e3.pt"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"weights")
    (item,) = await inputs.of(run(earlier("./data/runs/r1/checkpoint/e3.pt")))
    assert (item.place, item.sha256) == ("runs/r1/checkpoint/e3.pt", sha(b"weights"))
    assert inputs.path(item) == file
    with inputs.open(item) as opened:
        assert opened.read() == b"weights"
    private = Folders(root=tmp_path / "private", moved=((Family.MODELS, tmp_path / "elsewhere"),))
    assert item.below(private) == tmp_path / "private" / "runs" / "r1" / "checkpoint" / "e3.pt"


def test_a_place_that_leads_elsewhere_is_refused(tmp_path):
    item = InputItem(sha256="a" * 64, size_bytes=1, family=Family.FILES, name="x", place="../x")
    with pytest.raises(BadName):
        item.below(Folders(root=tmp_path))
    with pytest.raises(BadName):
        Inputs(Folders(root=tmp_path)).path(item)
