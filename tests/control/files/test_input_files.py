"""Inputs of runs, many at a time."""

import os

import pytest

from codefyui_core.control.files.input_files import InputFiles
from codefyui_core.errors import BadName
from codefyui_core.files import Family, Folders
from codefyui_core.plugin import InputItem


def item(name, family=Family.FILES, place=None):
    return InputItem(sha256="a" * 64, size_bytes=0, family=family, name=name, place=place)


@pytest.fixture
def folders(tmp_path):
    for name, data in {
        "files/a/b.csv": b"table",
        "images/c.png": b"image",
        "runs/r/e.pt": b"weights",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return Folders.below(tmp_path)


def test_files_of_all_families_and_of_earlier_runs_are_there(folders):
    items = [item("a/b.csv"), item("c.png", Family.IMAGES), item("x", Family.MODELS, "runs/r/e.pt")]
    with InputFiles(folders) as files:
        assert [files.size(one) for one in items] == [5, 5, 7]
        found = []
        for one in items:
            with files.open(one) as opened:
                found.append(opened.read())
    assert found == [b"table", b"image", b"weights"]


@pytest.mark.parametrize("name", ["link.csv", "linked/secret", "../secret", "a"])
def test_what_is_no_file_below_its_folder_is_refused(folders, tmp_path, name):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "files" / "link.csv").symlink_to(tmp_path / "secret")
    (tmp_path / "files" / "linked").symlink_to(tmp_path)
    with InputFiles(folders) as files:
        with pytest.raises(BadName):
            files.size(item(name))
        with pytest.raises(BadName):
            files.open(item(name))


def test_what_is_gone_is_said_to_be_gone(folders, tmp_path):
    with InputFiles(folders) as files:
        assert files.size(item("a/b.csv")) == 5
        (tmp_path / "files" / "a" / "b.csv").unlink()
        for ask in (files.size, files.open):
            with pytest.raises(FileNotFoundError):
                ask(item("a/b.csv"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts what is open")  # noqa: PTH112
def test_nothing_stays_open(folders):
    before = os.listdir("/proc/self/fd")  # noqa: PTH208
    with InputFiles(folders) as files:
        for one in (item("a/b.csv"), item("c.png", Family.IMAGES), item("absent.csv")):
            try:
                files.size(one)
            except FileNotFoundError:
                continue
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208
