"""``--mount`` and what ``agent.json`` keeps of it."""

from pathlib import Path

import pytest

from codefyui_core.plugin import JsonObject, StartProblem, UsageProblem
from codefyui_storage_mount.backend import MountBackend
from codefyui_storage_mount.sight import NoAnswer, is_folder


def settle(*given: str, saved: JsonObject | None = None) -> JsonObject:
    return MountBackend().settle({"mount": given} if given else {}, saved or {})


@pytest.mark.spec("agent/mount-flag-names-folder")
def test_what_is_given_is_saved_by_its_label(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    settled = settle(f"data={tmp_path}", f"lab={other}")
    assert settled == {"mounts": {"data": str(tmp_path), "lab": str(other)}}


@pytest.mark.spec("mount/saved-in-agent-json-and-reused")
def test_a_start_without_the_flag_keeps_what_was_saved() -> None:
    saved: JsonObject = {"mounts": {"data": "/not/mounted/yet"}}
    assert settle(saved=saved) == saved


def test_another_label_is_added_and_the_same_one_replaced(tmp_path: Path) -> None:
    saved: JsonObject = {"mounts": {"data": "/old", "lab": "/lab"}}
    assert settle(f"data={tmp_path}", saved=saved) == {"mounts": {"data": str(tmp_path), "lab": "/lab"}}


@pytest.mark.spec("mount/empty-value-removes-saved-mount")
def test_an_empty_path_forgets_the_label() -> None:
    saved: JsonObject = {"mounts": {"data": "/b", "lab": "/lab"}}
    assert settle("data=", saved=saved) == {"mounts": {"lab": "/lab"}}
    assert settle("data=", saved={"mounts": {"data": "/b"}}) == {}
    assert settle("data=") == {}


def test_a_relative_path_counts_from_where_the_agent_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "share").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    expected = {"mounts": {"data": str(tmp_path / "share")}}
    assert settle("data=share") == settle("data=./share") == settle("data=~/share") == expected


def test_a_path_may_hold_an_equals_sign(tmp_path: Path) -> None:
    path = tmp_path / "a=b"
    path.mkdir()
    assert settle(f"data={path}") == {"mounts": {"data": str(path)}}


@pytest.mark.parametrize("text", ["data", "=/a", "da ta=/a", "a/b=/a", "", "data/", f"{'x' * 64}=/a"])
def test_a_flag_of_another_form_is_wrong_use(text: str) -> None:
    with pytest.raises(UsageProblem, match="--mount"):
        settle(text)


@pytest.mark.parametrize("path", ["~nobody-of-this-name/x", "/nas/\udcff"])
def test_a_path_that_can_not_be_one_is_wrong_use(path: str) -> None:
    with pytest.raises(UsageProblem, match="can't be the path"):
        settle(f"data={path}")


def test_a_label_twice_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="twice"):
        settle(f"data={tmp_path}", "data=")


def test_a_flag_whose_folder_is_not_there_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("nothing", "file"):
        with pytest.raises(StartProblem, match="Mount the share first"):
            settle(f"data={tmp_path / name}")


def test_a_flag_whose_file_server_is_dead_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hangs(path: Path) -> bool:
        raise NoAnswer(str(path))

    monkeypatch.setattr("codefyui_storage_mount.options.is_folder", hangs)
    with pytest.raises(StartProblem, match="doesn't answer"):
        settle(f"data={tmp_path}")


def test_a_folder_is_seen_and_a_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert is_folder(tmp_path)
    assert not is_folder(tmp_path / "file")
    assert not is_folder(tmp_path / "nul\0")


def test_a_damaged_entry_says_where_it_stands() -> None:
    with pytest.raises(StartProblem, match=r"agent\.json"):
        settle(saved={"mounts": ["/b"]})
