"""Which torch is installed, and who installs it."""

import json
import os
from pathlib import Path

import pytest

from cdui_setup.problem import SetupProblem
from cdui_setup.torch_build import (
    Accelerators,
    Installer,
    backend_for,
    check_choice,
    default_build,
    installer_for,
    packages_of,
)

CUDA_13 = {"torch": "2.13.0", "nvidia-cuda-runtime": "13.0.96", "nvidia-cudnn-cu13": "9.1"}
CUDA_126 = {"torch": "2.13.0", "nvidia-cuda-runtime-cu12": "12.6.77"}
CPU = {"torch": "2.13.0+cpu"}
PLAIN = {"torch": "2.13.0", "sympy": "1.14.0"}
ROCM = {"torch": "2.13.0+rocm6.3"}
UNKNOWN_CUDA = {"torch": "2.13.0", "nvidia-cublas": "1"}


@pytest.mark.parametrize(
    ("packages", "build"),
    [
        (CUDA_13, "cu130"),
        (CUDA_126, "cu126"),
        (CPU, "cpu"),
        (PLAIN, "cpu"),
        (ROCM, "rocm6.3"),
        (UNKNOWN_CUDA, ""),
    ],
)
def test_the_default_build_is_told_by_its_packages(packages: dict[str, str], build: str) -> None:
    assert default_build(packages) == build


@pytest.mark.parametrize(
    ("backend", "packages", "installer"),
    [
        ("cpu", CPU, Installer.PIP),
        ("cpu", PLAIN, Installer.PIP),
        ("cpu", CUDA_13, Installer.UV),
        ("cu130", CUDA_13, Installer.PIP),
        ("cu126", CUDA_126, Installer.PIP),
        ("cu126", CUDA_13, Installer.UV),
        ("cu130", CPU, Installer.UV),
        ("cu130", UNKNOWN_CUDA, Installer.UV),
        ("rocm6.3", ROCM, Installer.PIP),
        ("rocm6.3", CPU, Installer.UV),
        ("xpu", CPU, Installer.UV),
        ("auto", CUDA_13, Installer.UV),
        ("auto", CPU, Installer.PIP),
    ],
)
def test_pip_installs_its_default_build_and_uv_any_other(
    backend: str, packages: dict[str, str], installer: Installer
) -> None:
    assert installer_for(backend, packages) is installer


@pytest.mark.parametrize(
    ("choice", "machine", "backend"),
    [
        ("auto", Accelerators(), "cpu"),
        ("auto", Accelerators(nvidia=True), "auto"),
        ("auto", Accelerators(amd=True), "auto"),
        ("cu126", Accelerators(), "cu126"),
        ("cpu", Accelerators(nvidia=True), "cpu"),
    ],
)
def test_auto_is_cpu_without_a_device(choice: str, machine: Accelerators, backend: str) -> None:
    assert backend_for(choice, machine) == backend


@pytest.mark.parametrize("choice", ["auto", "cpu", "cu118", "cu130", "rocm6.3", "rocm7", "xpu"])
def test_the_names_of_uv_are_choices(choice: str) -> None:
    assert check_choice(choice) == choice


@pytest.mark.parametrize("choice", ["cuda", "CPU", "", "cu", "12.6", "--help"])
def test_other_names_are_a_usage_error(choice: str) -> None:
    with pytest.raises(SetupProblem, match="cu126") as caught:
        check_choice(choice)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        ("dev/nvidiactl", Accelerators(nvidia=True)),
        ("proc/driver/nvidia/version", Accelerators(nvidia=True)),
        ("dev/kfd", Accelerators(amd=True)),
        ("dev/null", Accelerators()),
    ],
)
def test_a_device_is_seen_by_its_driver(
    name: str, machine: Accelerators, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    file.touch()
    assert Accelerators.look(tmp_path) == machine


def test_the_report_names_packages_as_they_like() -> None:
    report = {"install": [{"metadata": {"name": "NVIDIA_cuda.runtime", "version": "13.0"}}]}
    assert packages_of(report) == {"nvidia-cuda-runtime": "13.0"}
    assert packages_of({}) == {}


@pytest.mark.spec("install/gpu-choice-flag")
@pytest.mark.parametrize(
    ("words", "environ", "packages", "call"),
    [
        (["--gpu", "cpu"], {}, CPU, "pip install torch==2.13.0"),
        (
            ["--gpu", "cpu"],
            {},
            CUDA_13,
            "uv pip install --reinstall-package torch --torch-backend cpu torch==2.13.0",
        ),
        (
            ["--gpu", "cu126"],
            {},
            CPU,
            "uv pip install --reinstall-package torch --torch-backend cu126 torch==2.13.0",
        ),
        (["--gpu", "cu130"], {}, CUDA_13, "pip install torch==2.13.0"),
        (
            [],
            {"CODEFYUI_GPU": "rocm6.3"},
            CPU,
            "uv pip install --reinstall-package torch --torch-backend rocm6.3 torch==2.13.0",
        ),
        (["--gpu", "cpu"], {"CODEFYUI_GPU": "cu126"}, CPU, "pip install torch==2.13.0"),
    ],
)
def test_install_takes_the_chosen_build(
    installation, words: list[str], environ: dict[str, str], packages: dict[str, str], call: str
) -> None:
    installation.machine.packages = packages
    ran = installation.run("install", *words, **environ)
    assert ran.status == 0
    assert call in ran.calls
    assert sum("--torch-backend" in one for one in ran.calls) == ("--torch-backend" in call)


def test_another_choice_replaces_torch_alone_and_is_kept(installation) -> None:
    installation.run("install")
    changed = installation.run("install", "--gpu", "cu126")
    assert changed.calls == [
        "pip install --dry-run --ignore-installed --report torch==2.13.0",
        "uv pip install --reinstall-package torch --torch-backend cu126 torch==2.13.0",
    ]
    again = installation.run("install")
    assert again.calls == []
    assert "installed already" in again.err
    assert installation.run("--version").calls == []


def test_a_choice_that_fails_is_forgotten_and_the_former_build_is_made_sure_of(installation) -> None:
    installation.run("install")
    failed = installation.run("install", "--gpu", "cu126", FAKE_FAIL="--torch-backend")
    assert failed.status == 1
    again = installation.run("--version")
    assert again.status == 0
    assert again.calls[1:] == [
        "pip install --force-reinstall --no-deps torch==2.13.0",
        "pip install torch==2.13.0",
    ]


def test_choosing_what_auto_chose_installs_nothing_and_is_kept(installation) -> None:
    installation.run("install")
    assert installation.run("install", "--gpu", "cpu").calls == []
    assert (installation.root / ".venv" / "cdui" / "choice").read_text() == "cpu"


def test_auto_with_a_gpu_falls_back_on_the_index_that_pip_knows(installation) -> None:
    machine = installation.machine
    machine.packages = CUDA_13
    (machine.bin / "nvidia-smi").write_text("#!/bin/sh\n")
    (machine.bin / "nvidia-smi").chmod(0o755)
    ran = installation.run("install", FAKE_FAIL="--torch-backend auto")
    assert ran.status == 0
    assert ran.calls[-3:] == [
        "uv pip install --reinstall-package torch --torch-backend auto torch==2.13.0",
        "pip install torch==2.13.0",
        "uv pip install -e -e",
    ]


def test_another_build_waits_for_the_server_to_be_stopped(installation) -> None:
    installation.run("install")
    user = installation.machine.folder / "user"
    user.mkdir()
    (user / "server.json").write_text(json.dumps({"pid": os.getpid()}))
    ran = installation.run("install", "--gpu", "cu126")
    assert (ran.status, ran.calls) == (3, [])
    assert "cdui stop" in ran.err


def test_a_wrong_choice_installs_nothing(installation) -> None:
    ran = installation.run("install", "--gpu", "cuda")
    assert (ran.status, ran.calls) == (2, [])
    assert "cu126" in ran.err
