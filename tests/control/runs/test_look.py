"""What the server makes of paths in parameters, as a run on it would find them."""

import pytest

from codefyui_core.control.runs.documents import DiskLook
from codefyui_core.files import Family
from codefyui_core.plugin.views import FileSource
from codefyui_core.settings import Install


@pytest.fixture
def install(tmp_path):
    made = Install.find(environ={"CODEFYUI_DIR": str(tmp_path)})
    made.prepare()
    return made


def put(path, data=b"x"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


CHECKPOINT = "data/runs/r1/checkpoint/e3.pt"


def test_a_checkpoint_that_a_run_left_here_is_one_that_can_travel(install):
    put(install.run_files / "r1" / "checkpoint" / "e3.pt", b"weights")
    seen = DiskLook.of(install).at(CHECKPOINT)
    assert (seen.source, seen.present, seen.size_bytes) == (FileSource.ARTIFACT, True, 7)


@pytest.mark.parametrize("value", ["data/runs/r1/checkpoint", CHECKPOINT, "data/runs/../runs/r1/x.pt"])
def test_a_folder_and_what_is_not_there_or_climbs_is_a_plain_path(install, value):
    (install.run_files / "r1" / "checkpoint").mkdir(parents=True)
    put(install.run_files / "r1" / "x.pt")
    assert DiskLook.of(install).at(value).source is FileSource.DATA_PATH


def test_a_path_that_only_this_machine_understands_is_a_plain_path(install):
    file = put(install.run_files / "r1" / "checkpoint" / "e3.pt")
    assert DiskLook.of(install).at(str(file)).source is FileSource.DATA_PATH


def test_the_data_folder_is_meant_by_data_also_where_it_was_moved(tmp_path):
    environ = {
        "CODEFYUI_DIR": str(tmp_path),
        "CODEFYUI_DATA_DIR": str(tmp_path / "lab"),
        "CODEFYUI_DATA_FILES_DIR": str(tmp_path / "share"),
    }
    install = Install.find(environ=environ)
    put(tmp_path / "share" / "a.txt", b"12")
    put(tmp_path / "lab" / "notes.txt", b"123")
    put(install.samples / "iris.csv", b"1234")
    look = DiskLook.of(install)
    found = [look.at(value) for value in ("data/files/a.txt", "data/notes.txt", "data/samples/iris.csv")]
    assert [(seen.source, seen.size_bytes) for seen in found] == [
        (FileSource.DATA_PATH, 2),
        (FileSource.DATA_PATH, 3),
        (FileSource.BUNDLED, 4),
    ]


@pytest.mark.spec("mount/project-directory-is-the-labelled-folder")
def test_in_a_project_its_folders_are_the_data_folders(tmp_path):
    project = tmp_path / "p"
    install = Install.find(environ={"CODEFYUI_DIR": str(tmp_path)}, project=project)
    install.prepare()
    put(project / "models" / "m.pt", b"12")
    put(project / "runs" / "r1" / "checkpoint" / "e3.pt", b"123")
    look = DiskLook.of(install)
    assert look.below(Family.MODELS, "m.pt").size_bytes == 2
    assert look.at("data/models/m.pt").source is FileSource.DATA_PATH
    assert look.at(CHECKPOINT).source is FileSource.ARTIFACT


def test_a_name_in_either_form_finds_the_upload(install):
    put(install.folders().of(Family.MODELS) / "\u00e9.pt", b"123")
    assert DiskLook.of(install).below(Family.MODELS, "e\u0301.pt").size_bytes == 3
