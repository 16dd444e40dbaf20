"""Folders of spools: whole or not there, whatever happened while they were made or removed."""

import pytest

from codefyui_core.agent import folder
from codefyui_core.agent.folder import Head, Owner

HEAD = Head(db_id="d", worker_id="w", run_id="r", attempt=1, lease="l")


@pytest.mark.point(45)
def test_a_folder_that_a_full_disk_kept_from_being_made_leaves_nothing(tmp_path, monkeypatch):
    def full(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder, "write_private", full)
    with pytest.raises(OSError, match="No space"):
        folder.make(tmp_path, HEAD, Owner.this_process("i"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.point(17)
@pytest.mark.parametrize("name", [".r.1.making", ".r.1.gone"])
def test_what_a_killed_agent_had_half_made_or_half_removed_is_swept_by_the_next(tmp_path, name):
    killed = Owner.this_process("i").model_copy(update={"pid": 2**22 + 1})
    folder.make(tmp_path, HEAD, killed).rename(tmp_path / name)
    assert folder.take_over(tmp_path, Owner.this_process("j")) == ([], [])
    assert list(tmp_path.iterdir()) == []


def test_what_another_living_agent_is_making_is_left_alone(tmp_path):
    elsewhere = Owner.this_process("i").model_copy(update={"host": "another-machine"})
    making = folder.make(tmp_path, HEAD, elsewhere).rename(tmp_path / ".r.1.making")
    folder.take_over(tmp_path, Owner.this_process("j"))
    assert making.is_dir()
    folder.take_over(tmp_path, Owner.this_process("j"), heir=True)
    assert not making.exists()
