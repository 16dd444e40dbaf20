"""What the launcher does on first use, on the next one, and after a step broke off."""

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

from codefyui_core._version import __version__

TORCH = "torch==2.13.0"
ENVIRONMENT = "venv"
UV = "pip install uv=="
AHEAD = f"pip install --dry-run --ignore-installed --report {TORCH}"
REPLACE = f"pip install --force-reinstall --no-deps {TORCH}"
BY_PIP = f"pip install {TORCH}"
PACKAGES = "uv pip install -e -e"


def kinds(calls: list[str]) -> list[str]:
    """Calls with uv's own pin left open."""
    return [UV if call.startswith(UV) else call for call in calls]


def test_the_first_use_sets_up_everything_in_order_and_runs_the_command(installation) -> None:
    ran = installation.run("--version")
    assert kinds(ran.calls) == [ENVIRONMENT, UV, AHEAD, BY_PIP, PACKAGES]
    assert (ran.status, ran.out) == (0, f"{__version__}\n")


def test_progress_goes_to_standard_error_and_details_to_the_log(installation) -> None:
    ran = installation.run("--version")
    titles = [line.strip().partition(" ...")[0] for line in ran.err.splitlines()[1:-1]]
    assert [title.partition(" ")[0] for title in titles] == ["Python", "installer", "PyTorch", "CodefyUI"]
    assert "pip install" in (installation.root / ".venv" / "install.log").read_text()


def test_the_core_comes_with_its_extras_and_every_plugin_editable(installation, machine) -> None:
    installation.run("--version")
    last = machine.calls_file.read_text().splitlines()[-1]
    root = installation.root
    assert f'"-e", "{root}[agent,control]", "-e", "{root}/plugins/sample"' in last
    assert f'"-c", "{root}/constraints.txt"' in last


def test_nothing_changed_is_no_work(installation) -> None:
    installation.run("--version")
    again = installation.run("--version")
    assert again.calls == []
    assert (again.status, again.out, again.err) == (0, f"{__version__}\n", "")


def test_the_environment_is_linked_beside_the_base_folder(installation) -> None:
    installation.run("--version")
    assert (installation.root / "backend" / ".venv").readlink() == Path("../.venv")


@pytest.mark.parametrize(
    ("sign", "remaining"),
    [
        ("-m venv", [ENVIRONMENT, UV, AHEAD, BY_PIP, PACKAGES]),
        ("uv==", [UV, AHEAD, BY_PIP, PACKAGES]),
        ("--report", [AHEAD, BY_PIP, PACKAGES]),
        (f"install --quiet {TORCH}", [AHEAD, BY_PIP, PACKAGES]),
        ("[agent,control]", [PACKAGES]),
    ],
)
def test_a_broken_step_is_explained_and_taken_up_again(installation, sign: str, remaining: list[str]) -> None:
    broken = installation.run("--version", FAKE_FAIL=sign)
    assert broken.status == 1
    assert broken.out == ""
    for part in ("status 3", "some output of the installer", "check the network", "run the command again"):
        assert part in broken.err
    assert "Traceback" not in broken.err
    again = installation.run("--version")
    assert kinds(again.calls) == remaining
    assert again.out == f"{__version__}\n"


@pytest.mark.parametrize(
    "name", ["pyproject.toml", "plugins/sample/pyproject.toml", "codefyui_core/_version.py"]
)
def test_changed_packages_are_installed_again_but_not_torch(installation, name: str) -> None:
    installation.run("--version")
    installation.edit(name, "\n# changed\n")
    assert installation.run("--version").calls == [PACKAGES]
    assert installation.run("--version").calls == []


def test_another_pin_of_torch_is_installed(installation) -> None:
    installation.run("--version")
    constraints = installation.root / "constraints.txt"
    constraints.write_text(constraints.read_text().replace(TORCH, "torch==2.14.0"))
    calls = [call.replace("2.14.0", "2.13.0") for call in installation.run("--version").calls]
    assert calls == [AHEAD, REPLACE, BY_PIP, PACKAGES]


def test_a_moved_folder_is_set_up_again(installation, tmp_path: Path) -> None:
    installation.run("--version")
    moved = tmp_path / "elsewhere"
    shutil.move(installation.root, moved)
    installation.root = moved
    assert PACKAGES in installation.run("--version").calls


def test_a_lost_interpreter_is_replaced(installation) -> None:
    installation.run("--version")
    (installation.root / ".venv" / "bin" / "python").unlink()
    installation.edit("pyproject.toml", "\n")
    assert kinds(installation.run("--version").calls) == [ENVIRONMENT, UV, AHEAD, BY_PIP, PACKAGES]


def test_the_launcher_works_through_links(installation, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "one").symlink_to("../CodefyUI/cdui")
    (tmp_path / "bin" / "two").symlink_to(tmp_path / "bin" / "one")
    ran = installation.machine.run([tmp_path / "bin" / "two", "--version"], root=installation.root)
    assert ran.out == f"{__version__}\n"
    assert not (tmp_path / "bin" / ".venv").exists()


def test_a_second_launcher_waits_for_the_first(installation) -> None:
    lock = installation.root / ".venv" / "cdui" / "lock"
    lock.parent.mkdir(parents=True)
    environ = installation.machine.environ(installation.root, {})
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with subprocess.Popen(
            [installation.root / "cdui", "--version"],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as launcher:
            assert launcher.stderr is not None
            assert "waiting for it" in launcher.stderr.readline()
            assert not (installation.root / ".venv" / "bin").exists()
            fcntl.flock(held, fcntl.LOCK_UN)
            out, _ = launcher.communicate(timeout=60)
    assert out == f"{__version__}\n"


def test_an_old_python_is_refused(installation, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("readlink", "dirname", "cat", "cksum"):
        (tools / name).symlink_to(shutil.which(name) or name)
    old = tools / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    ran = installation.run("--version", PATH=str(tools))
    assert ran.status == 1
    assert "Python 3.11 or newer is needed" in ran.err


def test_arguments_reach_the_command_whole(installation) -> None:
    ran = installation.run("--two words")
    assert ran.status == 2
    assert "'--two words'" in ran.err
