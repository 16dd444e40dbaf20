"""Which folder the server shares."""

from pathlib import Path

import pytest

from codefyui_core.plugin import BadName, Family, Folders
from codefyui_storage_mount.shared import Shared

FOUR = (Family.FILES, Family.IMAGES, Family.MODELS, Family.MEDIA)


def moved(**places: Path) -> tuple[tuple[Family, Path], ...]:
    return tuple((Family(name), path) for name, path in places.items())


@pytest.mark.spec("mount/control-plane-data-folder-has-label-data")
def test_it_is_the_data_folder(tmp_path: Path) -> None:
    shared = Shared.of(Folders(root=tmp_path / "data"), "data")
    assert (shared.root, shared.apart) == (tmp_path / "data", frozenset())


@pytest.mark.spec("mount/data-folder-env-overrides")
def test_it_is_where_all_four_families_were_moved_together(tmp_path: Path) -> None:
    share = tmp_path / "mnt" / "data"
    places = tuple((family, share / family.value) for family in FOUR)
    shared = Shared.of(Folders(root=tmp_path / "data", moved=places), "data")
    assert (shared.root, shared.apart) == (share, frozenset())
    assert shared.name_of("models/a.pt") == "models/a.pt"


def test_it_stays_the_data_folder_when_single_families_were_moved(tmp_path: Path) -> None:
    places = moved(models=tmp_path / "m", files=tmp_path / "share" / "files")
    shared = Shared.of(Folders(root=tmp_path / "data", moved=places), "data")
    assert shared.root == tmp_path / "data"
    assert shared.apart == {Family.MODELS, Family.FILES}


def test_four_families_under_names_of_their_own_are_not_together(tmp_path: Path) -> None:
    places = tuple((family, tmp_path / "share" / f"lab-{family.value}") for family in FOUR)
    shared = Shared.of(Folders(root=tmp_path / "data", moved=places), "data")
    assert (shared.root, shared.apart) == (tmp_path / "data", frozenset(FOUR))


def test_a_family_that_a_link_leads_to_is_not_apart(tmp_path: Path) -> None:
    (tmp_path / "data" / "models").mkdir(parents=True)
    (tmp_path / "m").symlink_to(tmp_path / "data" / "models")
    shared = Shared.of(Folders(root=tmp_path / "data", moved=moved(models=tmp_path / "m")), "data")
    assert shared.apart == frozenset()


@pytest.mark.spec("mount/project-directory-is-the-labelled-folder", "mount/project-uploads-not-shared")
def test_a_project_is_the_folder_and_its_uploads_are_apart(tmp_path: Path) -> None:
    (tmp_path / "codefyui.project.toml").write_text("")
    below = Folders.below(tmp_path)
    places = {**dict(below.moved), Family.FILES: tmp_path.parent / "files"}
    shared = Shared.of(Folders(root=tmp_path, moved=tuple(places.items())), "data")
    assert (shared.root, shared.apart) == (tmp_path, {Family.FILES})
    assert shared.name_of("models/a.pt") == "assets/models/a.pt"


def test_a_project_whose_families_all_lie_in_one_folder_is_still_the_project(tmp_path: Path) -> None:
    (tmp_path / "codefyui.project.toml").write_text("")
    shared = Shared.of(Folders.below(tmp_path), "data")
    assert (shared.root, shared.apart) == (tmp_path, frozenset())


@pytest.mark.parametrize("name", ["models", "secret/a", "../a", "/etc/passwd", "models/../../a"])
def test_what_lies_in_no_family_has_no_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadName):
        Shared.of(Folders(root=tmp_path), "data").name_of(name)


def test_it_holds_what_was_recorded_in_it_and_nothing_of_another(tmp_path: Path) -> None:
    shared = Shared.of(Folders(root=tmp_path), "data", "1" * 32)
    assert shared.holds("data", "1" * 32)
    assert shared.holds("data", None)
    assert not shared.holds("data", "2" * 32)
    assert not shared.holds("lab", "1" * 32)
    assert not shared.holds(None, None)
    assert Shared.of(Folders(root=tmp_path), "data").holds("data", "2" * 32)
