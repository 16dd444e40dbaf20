"""install.sh and ``cdui update``, from a repository with releases."""

import json
import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.service


@pytest.fixture
def install(machine, repository, tmp_path: Path):
    """Run install.sh as a person would, into their home."""

    def run(**environ: str):
        extra = {"CODEFYUI_INSTALL_FROM": str(repository.root)} | environ
        return machine.run(["sh", repository.root / "install.sh"], root=home(machine), **extra)

    return run


def home(machine) -> Path:
    return machine.folder / "CodefyUI"


def version(machine, root: Path | None = None) -> str:
    root = root or home(machine)
    return machine.run([root / "cdui", "--version"], root=root).out


@pytest.mark.spec("install/release-tag-pins-version", "install/version-command")
@pytest.mark.parametrize("wanted", ["0.1.0", "v0.1.0"])
def test_the_release_that_was_asked_for_is_installed(install, machine, wanted: str) -> None:
    ran = install(CODEFYUI_RELEASE_TAG=wanted)
    assert (ran.status, ran.out) == (0, "")
    assert version(machine) == "0.1.0\n"


def test_the_newest_release_is_the_default(install, machine) -> None:
    assert install().status == 0
    assert version(machine) == "0.10.0\n"


def test_cdui_is_put_on_path(install, machine) -> None:
    ran = install()
    link = machine.folder / ".local" / "bin" / "cdui"
    assert link.resolve() == home(machine) / "cdui"
    assert f"{machine.folder}/.local/bin on PATH" in ran.err
    assert machine.run([link, "--version"], root=home(machine)).out == "0.10.0\n"


def test_another_folder_and_build_can_be_chosen(install, machine, tmp_path: Path) -> None:
    ran = install(CODEFYUI_DIR=str(tmp_path / "opt" / "codefyui"), CODEFYUI_GPU="cu126")
    assert "uv pip install --reinstall-package torch --torch-backend cu126 torch==2.13.0" in ran.calls
    assert not home(machine).exists()
    assert version(machine, tmp_path / "opt" / "codefyui") == "0.10.0\n"


def test_installing_again_goes_to_the_other_release(install, machine) -> None:
    install(CODEFYUI_RELEASE_TAG="0.2.0")
    assert install(CODEFYUI_RELEASE_TAG="0.1.0").status == 0
    assert version(machine) == "0.1.0\n"


def test_a_release_that_is_not_there_is_named_with_those_that_are(install, machine) -> None:
    ran = install(CODEFYUI_RELEASE_TAG="7.0.0")
    assert ran.status == 1
    assert "no release 7.0.0" in ran.err
    assert "0.10.0 0.2.0 0.1.0" in ran.err
    assert not home(machine).exists()


def test_a_folder_with_other_things_is_left_alone(install, machine) -> None:
    home(machine).mkdir()
    (home(machine) / "thesis.tex").write_text("x")
    ran = install()
    assert ran.status == 1
    assert "CODEFYUI_DIR" in ran.err
    assert [path.name for path in home(machine).iterdir()] == ["thesis.tex"]


@pytest.mark.spec("version/update-command")
@pytest.mark.parametrize(("words", "expected"), [([], "0.10.0\n"), (["0.2.0"], "0.2.0\n")])
def test_update_goes_to_a_release_and_installs_it(install, machine, words: list[str], expected: str) -> None:
    install(CODEFYUI_RELEASE_TAG="0.1.0")
    ran = machine.run([home(machine) / "cdui", "update", *words], root=home(machine))
    assert ran.status == 0
    assert "uv pip install -e -e" in ran.calls
    assert version(machine) == expected


def test_update_waits_for_the_server_to_be_stopped(install, machine) -> None:
    install(CODEFYUI_RELEASE_TAG="0.1.0")
    user = machine.folder / "user"
    user.mkdir()
    (user / "server.json").write_text(json.dumps({"pid": os.getpid()}))
    ran = machine.run([home(machine) / "cdui", "update"], root=home(machine))
    assert ran.status == 3
    assert "Stop it first: cdui stop" in ran.err
    assert version(machine) == "0.1.0\n"


def test_update_to_a_release_that_is_not_there_changes_nothing(install, machine) -> None:
    install(CODEFYUI_RELEASE_TAG="0.1.0")
    ran = machine.run([home(machine) / "cdui", "update", "7.0.0"], root=home(machine))
    assert ran.status == 1
    assert "There is no release 7.0.0. The newest ones: 0.1.0, 0.2.0, 0.10.0." in ran.err
    assert version(machine) == "0.1.0\n"


def test_update_keeps_local_changes_and_says_so(install, machine) -> None:
    install(CODEFYUI_RELEASE_TAG="0.1.0")
    changed = home(machine) / "codefyui_core" / "_version.py"
    changed.write_text(changed.read_text() + "# mine\n")
    ran = machine.run([home(machine) / "cdui", "update"], root=home(machine))
    assert ran.status == 1
    assert "_version.py" in ran.err
    assert changed.read_text().endswith("# mine\n")
