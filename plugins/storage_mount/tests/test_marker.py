"""The file by which two paths are known to lead to one folder."""

import json
import os
import threading
from pathlib import Path

import pytest

from codefyui_core.plugin import BadName
from codefyui_storage_mount.marker import MARKER, mark, read_marker


def test_a_folder_keeps_the_id_that_it_got_first(tmp_path: Path) -> None:
    assert read_marker(tmp_path) is None
    first = mark(tmp_path)
    assert mark(tmp_path) == first == read_marker(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [MARKER]


def test_two_folders_have_two_ids(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert mark(tmp_path / "a") != mark(tmp_path / "b")


def test_servers_that_start_together_agree(tmp_path: Path) -> None:
    ids: list[str] = []
    at_once = threading.Barrier(8)

    def server() -> None:
        at_once.wait()
        ids.append(mark(tmp_path))

    threads = [threading.Thread(target=server) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 8
    assert set(ids) == {read_marker(tmp_path)}
    assert [path.name for path in tmp_path.iterdir()] == [MARKER]


def test_other_users_may_read_it_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        mark(tmp_path)
    finally:
        os.umask(before)
    assert (tmp_path / MARKER).stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": 5}', '{"id": "../x"}', "\x00\xff"])
def test_a_marker_that_says_nothing_is_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / MARKER).write_text(text)
    assert read_marker(tmp_path) is None
    made = mark(tmp_path)
    assert json.loads((tmp_path / MARKER).read_text())["id"] == made


def test_a_link_in_its_place_is_neither_followed_nor_written_through(tmp_path: Path) -> None:
    other = tmp_path / "other"
    folder = tmp_path / "folder"
    other.mkdir()
    folder.mkdir()
    mark(other)
    before = (other / MARKER).read_bytes()
    (folder / MARKER).symlink_to(other / MARKER)
    assert read_marker(folder) is None
    with pytest.raises(BadName):
        mark(folder)
    assert (other / MARKER).read_bytes() == before
