"""Where an installation's folders lie."""

from pathlib import Path

import pytest

from codefyui_core.errors import StartProblem, UsageProblem
from codefyui_core.files import Family
from codefyui_core.settings import ControlSettings, Install, read_settings


def test_a_checkout_keeps_everything_inside(tmp_path: Path) -> None:
    install = Install.find(environ={"CODEFYUI_DIR": str(tmp_path)})
    assert install.root == tmp_path
    assert install.user_data == tmp_path / ".codefyui_dev"
    assert install.base == tmp_path / "backend"
    assert install.data == tmp_path / "backend" / "data"
    assert install.folders().of(Family.MODELS) == tmp_path / "backend" / "data" / "models"
    assert install.custom_nodes == tmp_path / "backend" / "data" / "custom_nodes"
    assert install.examples == tmp_path / "examples"
    assert install.logs == tmp_path / ".codefyui_dev" / "logs"


def test_wheels_keep_everything_in_the_home(tmp_path: Path) -> None:
    install = Install.find(environ={}, home=tmp_path)
    assert install.root is None
    assert install.user_data == tmp_path / ".codefyui"
    assert install.base == tmp_path / ".codefyui" / "backend"
    assert install.examples is None


def test_the_data_folder_moves_as_a_whole_and_samples_stay(tmp_path: Path) -> None:
    environ = {"CODEFYUI_DIR": str(tmp_path), "CODEFYUI_DATA_DIR": str(tmp_path / "lab")}
    install = Install.find(environ=environ)
    assert install.folders().of(Family.OUTPUT) == tmp_path / "lab" / "output"
    assert install.samples == tmp_path / "backend" / "data" / "samples"
    assert install.readable[:2] == (tmp_path / "lab", install.samples)


@pytest.mark.parametrize(
    ("variable", "family"),
    [
        ("DATA_FILES", Family.FILES),
        ("IMAGES", Family.IMAGES),
        ("MODELS", Family.MODELS),
        ("MEDIA", Family.MEDIA),
        ("GRAPHS", Family.GRAPHS),
        ("PRESETS", Family.PRESETS),
    ],
)
def test_single_families_move(tmp_path: Path, variable: str, family: Family) -> None:
    environ = {"CODEFYUI_DIR": str(tmp_path), f"CODEFYUI_{variable}_DIR": str(tmp_path / "elsewhere")}
    folders = Install.find(environ=environ).folders()
    assert folders.of(family) == tmp_path / "elsewhere"
    others = [other for other in Family if other is not family]
    assert all(folders.of(other) == tmp_path / "backend" / "data" / other.value for other in others)


def test_the_users_file_may_move_folders_and_sets_values(tmp_path: Path) -> None:
    user = tmp_path / "me"
    user.mkdir()
    (user / ".env").write_text(f"CODEFYUI_DATA_DIR={tmp_path}/lab\nCODEFYUI_PORT=8010\n")
    environ = {"CODEFYUI_USER_DATA_DIR": str(user), "CODEFYUI_DIR": str(tmp_path)}
    install = Install.find(environ=environ, flags={"CODEFYUI_HOST": "0.0.0.0"})
    assert install.data == tmp_path / "lab"
    settings = read_settings(ControlSettings, install.layers)
    assert (settings.host, settings.port) == ("0.0.0.0", 8010)


def test_a_projects_file_counts_when_the_project_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("CODEFYUI_PORT=8020\n")
    install = Install.find(environ={}, project=tmp_path, home=tmp_path / "home")
    assert install.settings.project_dir == tmp_path
    assert read_settings(ControlSettings, install.layers).port == 8020


def test_extra_folders_are_a_list(tmp_path: Path) -> None:
    environ = {"CODEFYUI_EXTRA_DATA_DIRS": f"{tmp_path}/a, {tmp_path}/b"}
    assert Install.find(environ=environ, home=tmp_path).readable[-2:] == (tmp_path / "a", tmp_path / "b")


def test_prepare_makes_what_is_missing_and_can_be_repeated(tmp_path: Path) -> None:
    install = Install.find(environ={"CODEFYUI_DIR": str(tmp_path)})
    install.prepare()
    install.prepare()
    assert all(install.folders().of(family).is_dir() for family in Family)
    assert install.custom_nodes.is_dir()
    assert install.user_data.stat().st_mode & 0o077 == 0


def test_a_bad_settings_file_is_named_while_looking_for_folders(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"\xff")
    with pytest.raises(UsageProblem, match="settings file"):
        Install.find(environ={"CODEFYUI_USER_DATA_DIR": str(tmp_path)})


# ---------------------------------------------------------------- projects

MADE = (Family.IMAGES, Family.MODELS, Family.MEDIA, Family.OUTPUT, Family.GRAPHS, Family.PRESETS)
"""What a person makes is the project's."""


@pytest.mark.spec("mount/project-directory-is-the-labelled-folder", "mount/project-uploads-not-shared")
def test_a_project_has_what_a_person_makes_and_the_install_has_uploads_and_cache(tmp_path: Path) -> None:
    project = tmp_path / "p"
    install = Install.find(environ={"CODEFYUI_DIR": str(tmp_path)}, project=project)
    folders = install.folders()
    assert folders.root == project
    assert [folders.of(family) for family in MADE] == [project / family.value for family in MADE]
    data = tmp_path / "backend" / "data"
    assert [folders.of(family) for family in (Family.FILES, Family.CACHE)] == [data / "files", data / "cache"]
    assert install.run_files == project / "runs"
    assert (install.data, install.base) == (data, tmp_path / "backend")


@pytest.mark.spec("mount/project-directory-is-the-labelled-folder", "mount/project-uploads-not-shared")
def test_a_projects_own_file_places_its_families_and_no_uploads(tmp_path: Path) -> None:
    project = tmp_path / "p"
    project.mkdir()
    (project / "codefyui.project.toml").write_text('[folders]\nmodels = "weights"\nfiles = "tables"\n')
    folders = Install.find(environ={"CODEFYUI_DIR": str(tmp_path)}, project=project).folders()
    assert folders.of(Family.MODELS) == project / "weights"
    assert folders.of(Family.OUTPUT) == project / "assets" / "output"
    assert folders.of(Family.GRAPHS) == project / "graphs"
    assert folders.of(Family.FILES) == tmp_path / "backend" / "data" / "files"


@pytest.mark.spec("mount/data-folder-env-overrides")
def test_a_setting_of_one_family_wins_over_the_project(tmp_path: Path) -> None:
    environ = {
        "CODEFYUI_DIR": str(tmp_path),
        "CODEFYUI_DATA_FILES_DIR": "/s/f",
        "CODEFYUI_MODELS_DIR": "/s/m",
    }
    folders = Install.find(environ=environ, project=tmp_path / "p").folders()
    assert (folders.of(Family.FILES), folders.of(Family.MODELS)) == (Path("/s/f"), Path("/s/m"))
    assert folders.of(Family.IMAGES) == tmp_path / "p" / "images"


def test_preparing_a_project_makes_its_folders_and_no_project_file(tmp_path: Path) -> None:
    install = Install.find(environ={"CODEFYUI_DIR": str(tmp_path)}, project=tmp_path / "p")
    install.prepare()
    assert (tmp_path / "p" / "models").is_dir()
    assert not (tmp_path / "p" / "codefyui.project.toml").exists()


def test_a_project_file_that_is_broken_says_so(tmp_path: Path) -> None:
    (tmp_path / "codefyui.project.toml").write_text("[folders\n")
    with pytest.raises(StartProblem, match="Correct it"):
        Install.find(environ={}, project=tmp_path, home=tmp_path / "home").folders()


@pytest.mark.spec("mount/database-stays-local-when-folders-move")
def test_no_database_is_below_moved_folders(tmp_path: Path) -> None:
    share = tmp_path / "share"
    names = ("DATA_FILES", "IMAGES", "MODELS", "MEDIA", "GRAPHS", "PRESETS")
    environ = {f"CODEFYUI_{name}_DIR": str(share / name) for name in names} | {"CODEFYUI_DIR": str(tmp_path)}
    install = Install.find(environ=environ)
    url = read_settings(ControlSettings, install.layers).database(install.user_data)
    assert str(share) not in url
    assert str(install.user_data) in url
