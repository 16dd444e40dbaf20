"""Which files parameters mean, and which runs may touch."""

from dataclasses import replace
from pathlib import Path

import pytest

from codefyui_core.engine import Places
from codefyui_core.engine.paths import input_file, input_path, output_file
from codefyui_core.errors import BadName, CodefyError
from codefyui_core.files import Family, Folders


@pytest.fixture
def places(tmp_path):
    moved = tmp_path / "elsewhere"
    for name in ("backend/data/files", "backend/data/custom", "samples", "extra/deep", "secret", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    for name in (
        "backend/data/files/a.csv",
        "backend/data/custom/c.txt",
        "samples/iris.csv",
        "extra/deep/e.txt",
        "secret/key",
        "elsewhere/m.pt",
        "backend/x.txt",
    ):
        (tmp_path / name).write_text("x")
    return Places(
        base=tmp_path / "backend",
        folders=Folders(root=tmp_path / "backend/data", moved=((Family.MODELS, moved),)),
        downloads=tmp_path / "downloads",
        samples=tmp_path / "samples",
        extra=(tmp_path / "extra",),
    )


def test_an_upload_is_found_by_its_name_and_a_moved_family_where_it_lies(places, tmp_path):
    assert input_file(places, Family.FILES, "a.csv") == tmp_path / "backend/data/files/a.csv"
    assert input_file(places, Family.MODELS, "m.pt") == tmp_path / "elsewhere/m.pt"


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ("data/samples/iris.csv", "samples/iris.csv"),
        ("data/files/a.csv", "backend/data/files/a.csv"),
        ("data/models/m.pt", "elsewhere/m.pt"),
        ("data/custom/c.txt", "backend/data/custom/c.txt"),
        ("data", "backend/data"),
    ],
)
def test_relative_paths_are_below_the_base_and_data_is_wherever_the_run_has_it(
    places, tmp_path, value, place
):
    assert input_path(places, value) == tmp_path / place
    assert input_file(places, Family.FILES, value) == tmp_path / place


@pytest.mark.spec("mount/paths-may-differ-between-machines")
def test_the_servers_path_of_a_shared_folder_is_found_where_the_run_has_it(places, tmp_path):
    places = replace(places, known_as=Path("/srv/data"))
    assert input_path(places, "/srv/data/files/a.csv") == tmp_path / "backend/data/files/a.csv"
    assert input_file(places, Family.FILES, "/srv/data/files/a.csv") == tmp_path / "backend/data/files/a.csv"
    for value in ("/srv/data/../secret/key", "/srv/database/a.csv", f"{tmp_path}/secret/key"):
        with pytest.raises(CodefyError, match="outside"):
            input_path(places, value)


def test_absolute_paths_are_taken_as_they_are_below_the_folders_that_may_be_read(places, tmp_path):
    assert input_path(places, str(tmp_path / "extra/deep/e.txt")) == tmp_path / "extra/deep/e.txt"
    assert input_path(places, str(tmp_path / "extra/deep")) == tmp_path / "extra/deep"


@pytest.mark.parametrize(
    "value", ["../secret/key", "data/../../secret/key", "data/samples/../secret/key", "x.txt"]
)
def test_what_lies_outside_is_refused_and_the_setting_named(places, value):
    for read in (input_path, lambda all_places, name: input_file(all_places, Family.FILES, name)):
        with pytest.raises(CodefyError, match="CODEFYUI_EXTRA_DATA_DIRS") as caught:
            read(places, value)
        assert caught.value.code == "files.outside"


def test_a_link_out_of_the_folders_is_followed_before_it_is_judged(places, tmp_path):
    (tmp_path / "backend/data/files/link").symlink_to(tmp_path / "secret/key")
    with pytest.raises(CodefyError) as caught:
        input_file(places, Family.FILES, "link")
    assert caught.value.code == "files.outside"


def test_whether_something_is_there_outside_is_not_told(places, tmp_path):
    with pytest.raises(CodefyError) as caught:
        input_path(places, str(tmp_path / "secret/absent"))
    assert caught.value.code == "files.outside"


@pytest.mark.parametrize("value", ["absent.csv", "data/files/absent.csv", "", "  ", "a\0b"])
def test_a_file_that_is_not_there_is_named(places, value):
    with pytest.raises(CodefyError) as caught:
        input_file(places, Family.FILES, value)
    assert caught.value.code == "files.not_found"
    assert value.strip("\0 ")[:1] in caught.value.message


def test_writing_is_below_the_family_with_its_folders_made(places, tmp_path):
    assert output_file(places, Family.MODELS, "run/best.pt") == tmp_path / "elsewhere/run/best.pt"
    assert (tmp_path / "elsewhere/run").is_dir()
    assert output_file(places, Family.OUTPUT, "a.png") == tmp_path / "backend/data/output/a.png"


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "", "C:/x\\y\0"])
def test_writing_elsewhere_is_refused(places, name):
    with pytest.raises(BadName):
        output_file(places, Family.MODELS, name)


def test_writing_through_a_link_is_refused(places, tmp_path):
    (tmp_path / "elsewhere/out").symlink_to(tmp_path / "secret")
    (tmp_path / "elsewhere/file").symlink_to(tmp_path / "secret/key")
    for name in ("out/x", "file"):
        with pytest.raises(BadName):
            output_file(places, Family.MODELS, name)
    assert Path(tmp_path / "secret/key").read_text() == "x"
