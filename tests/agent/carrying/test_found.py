"""What a run left without recording it, and which of its inputs it wrote over."""

import hashlib
import os

import pytest

from codefyui_core.agent.carrying.copies import Stamp, open_file, place, snapshot
from codefyui_core.agent.carrying.found import files_below, input_stamp, written
from codefyui_core.agent.carrying.items import of_found
from codefyui_core.agent.carrying.journal import Placed
from codefyui_core.errors import BadName
from codefyui_core.files import Folders
from codefyui_core.portable_names import check_name, from_portable


class Run:
    def __init__(self, root):
        self.root = root
        self.folders = Folders(root=root)
        self.placed = {}
        self.recorded = {}

    def write(self, relative, data=b"x"):
        path = self.root / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def input(self, relative, data=b"input"):
        path = self.write(relative, data)
        digest = hashlib.sha256(data).hexdigest()
        stamp = input_stamp(path.stat())
        self.placed[relative] = Placed(relative=relative, sha256=digest, stamp=stamp)
        return path

    def record(self, relative):
        self.recorded[relative] = Stamp.of((self.root / relative).stat())

    def found(self):
        return [relative for relative, _, _ in written(self.folders, self.placed, self.recorded)]


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "data")


@pytest.mark.spec("transfer/other-written-files-uploaded-after-run")
def test_files_below_models_media_and_output_are_found_and_none_elsewhere(run):
    for family in ("files", "images", "models", "media", "graphs", "presets", "output", "cache"):
        run.write(f"{family}/deep/er/a.bin")
    assert run.found() == ["models/deep/er/a.bin", "media/deep/er/a.bin", "output/deep/er/a.bin"]


def test_what_was_recorded_is_found_only_if_it_was_written_over_since(run):
    run.write("models/kept.pt")
    run.write("models/changed.pt")
    run.record("models/kept.pt")
    run.record("models/changed.pt")
    run.write("models/changed.pt", b"more")
    assert run.found() == ["models/changed.pt"]


@pytest.mark.spec("transfer/overwritten-input-is-uploaded")
def test_inputs_are_found_when_their_content_changed_wherever_they_lie(run):
    run.input("files/same.csv")
    run.input("files/changed.csv")
    run.input("models/same.pt")
    run.input("models/changed.pt")
    run.input("files/removed.csv").unlink()
    os.utime(run.input("files/touched.csv"), (1, 1))
    replaced = run.input("images/replaced.png")
    run.write("files/changed.csv", b"other")
    run.write("models/changed.pt", b"tupni")
    replaced.unlink()
    run.write("images/replaced.png", b"input")
    assert run.found() == ["models/changed.pt", "files/changed.csv"]


def test_an_overwrite_that_hides_its_time_is_found(run):
    path = run.input("files/a.csv")
    before = path.stat()
    path.write_bytes(b"tupni")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert run.found() == ["files/a.csv"]


def test_links_are_not_followed_and_half_written_files_left_out(run, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s3cr3t")
    run.write("models/real.pt")
    (run.root / "models/link.pt").symlink_to(outside / "secret")
    (run.root / "models/folder").symlink_to(outside)
    run.write("models/.cdui-0123456789abcdef.part")
    os.mkfifo(run.root / "models/fifo")
    assert run.found() == ["models/real.pt"]


def test_a_folder_that_isn_t_there_has_no_files(tmp_path):
    assert list(files_below(tmp_path / "absent")) == []


def test_the_key_of_a_found_file_is_the_same_whenever_it_is_looked_for(run):
    path = run.write("models/a.pt")
    first, again = (of_found("r1", "models/a.pt", path, path.stat()) for _ in range(2))
    assert first.key == again.key
    assert len(first.key) == 32
    assert int(first.key, 16)
    assert of_found("r2", "models/a.pt", path, path.stat()).key != first.key
    assert of_found("r1", "models/b.pt", path, path.stat()).key != first.key


@pytest.mark.parametrize("name", ["a\\b.pt", "con.pt", "a\nb", "b\udcffc"])
def test_a_name_that_others_can_t_hold_travels_in_a_form_that_gives_it_back(run, name):
    path = run.write(f"models/{name}")
    item = of_found("r1", f"models/{name}", path, path.stat())
    assert (item.problem, item.path) == ("", path)
    assert from_portable(item.relative_path) == f"models/{name}"
    check_name(item.relative_path, windows=True)
    item.output.model_dump_json()
    item.name.encode()


def test_a_name_that_is_too_long_to_travel_is_a_problem_in_words_that_can_be_stored(run):
    name = "/".join(["models", *["deep\udcff" * 40] * 5])
    item = of_found("r1", name, run.write("models/x"), run.write("models/x").stat())
    assert "longer" in item.problem
    item.name.encode()


# ---------------------------------------------------------------- copies


def test_a_copy_has_nothing_to_do_with_its_source(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"a" * 100_000)
    descriptor = open_file(source)
    try:
        found = place(tmp_path / "data/files", "deep/copy.bin", descriptor, lambda: None)
        place(tmp_path / "data/files", "deep/copy.bin", descriptor, lambda: None)
    finally:
        os.close(descriptor)
    copy = tmp_path / "data/files/deep/copy.bin"
    assert found.st_size == 100_000
    assert copy.stat().st_ino != source.stat().st_ino
    copy.write_bytes(b"b")
    assert source.read_bytes() == b"a" * 100_000


@pytest.mark.parametrize("name", ["../up", "/etc/x", "a/../../b", "c:x", "a\\b", "link/x", ""])
def test_a_copy_never_leads_out_of_its_folder(tmp_path, name):
    source, outside, root = tmp_path / "source", tmp_path / "outside", tmp_path / "data/files"
    source.write_bytes(b"a")
    outside.mkdir()
    root.mkdir(parents=True)
    (root / "link").symlink_to(outside)
    descriptor = open_file(source)
    with pytest.raises(BadName):
        place(root, name, descriptor, lambda: None)
    os.close(descriptor)
    assert list(outside.iterdir()) == []
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["files"]


def test_a_copy_that_is_ended_ends(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"a" * 100)
    descriptor = open_file(source)

    def stop():
        raise KeyboardInterrupt

    try:
        place(tmp_path, "copy", descriptor, stop)
        shared = True  # blocks are shared here: nothing was copied
    except KeyboardInterrupt:
        shared = False
    os.close(descriptor)
    assert shared or (tmp_path / "copy").stat().st_size == 0


def test_a_snapshot_outlives_the_file_and_its_replacement(tmp_path):
    source, kept = tmp_path / "best.pt", tmp_path / "outbox/1"
    source.write_bytes(b"epoch 1")
    snapshot(source, kept)
    fresh = tmp_path / "fresh"
    fresh.write_bytes(b"epoch 2")
    fresh.replace(source)
    assert kept.read_bytes() == b"epoch 1"
    source.unlink()
    assert kept.read_bytes() == b"epoch 1"


def test_a_snapshot_where_there_are_no_links_is_a_copy(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError("no links here")

    monkeypatch.setattr("pathlib.Path.hardlink_to", refuse)
    source = tmp_path / "best.pt"
    source.write_bytes(b"epoch 1")
    snapshot(source, tmp_path / "outbox/1")
    source.write_bytes(b"epoch 2")
    assert (tmp_path / "outbox/1").read_bytes() == b"epoch 1"
