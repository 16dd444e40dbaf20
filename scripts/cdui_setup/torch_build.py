"""Which torch is installed, and by which installer.

A build is chosen by uv's names (``--torch-backend``): cpu, cu118, cu126, cu130, rocm6.3, xpu ..., or auto.
What pip would bring by the user's own index configuration is looked at first: where that build fits the
choice, pip installs it, so that mirrors and wheel folders of a site are used.
"""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from .problem import USAGE, SetupProblem

AUTO = "auto"
CPU = "cpu"
_CHOICE = re.compile(r"auto|cpu|cu\d{2,3}|rocm\d+(\.\d+)*|xpu")
_CUDA_RUNTIME = re.compile(r"nvidia-cuda-runtime(-cu\d+)?")


class Installer(Enum):
    """Who installs torch."""

    PIP = "pip"
    UV = "uv"


@dataclass(frozen=True)
class Accelerators:
    """What this machine has."""

    nvidia: bool = False
    amd: bool = False

    @classmethod
    def look(cls, root: Path = Path("/")) -> "Accelerators":
        """Device files of the drivers, or NVIDIA's tool on PATH (WSL has no device file)."""
        nvidia = any((root / name).exists() for name in ("dev/nvidiactl", "proc/driver/nvidia/version"))
        return cls(nvidia=nvidia or shutil.which("nvidia-smi") is not None, amd=(root / "dev/kfd").exists())


def check_choice(choice: str) -> str:
    """Raises: SetupProblem for a name that isn't one of uv's."""
    if not _CHOICE.fullmatch(choice):
        raise SetupProblem(
            f"{choice!r} is no build of PyTorch. Use auto, cpu, a CUDA version such as cu126 or cu130, "
            "a ROCm version such as rocm6.3, or xpu.",
            exit_code=USAGE,
        )
    return choice


def backend_for(choice: str, machine: Accelerators) -> str:
    """``auto`` on a machine without an NVIDIA or AMD device is ``cpu``: CUDA libraries would be 3 GB for
    nothing.
    """
    return CPU if choice == AUTO and not (machine.nvidia or machine.amd) else choice


def packages_of(report: Mapping[str, object]) -> dict[str, str]:
    """Name -> version of what ``pip install --dry-run --report`` would bring."""
    install = report.get("install")
    found: dict[str, str] = {}
    for item in install if isinstance(install, list) else []:
        metadata = item["metadata"]
        found[re.sub(r"[-_.]+", "-", metadata["name"]).lower()] = metadata["version"]
    return found


def installer_for(backend: str, packages: Mapping[str, str]) -> Installer:
    """Pip when its default build is what was chosen, else uv.

    ``auto`` on a machine with a GPU takes pip's build too when that has no CUDA: such an index is a site's
    own, and uv's addresses are then seldom reachable.
    """
    build = default_build(packages)
    return Installer.PIP if build == backend or (backend == AUTO and build == CPU) else Installer.UV


def default_build(packages: Mapping[str, str]) -> str:
    """``cpu``, ``cu130``, ``rocm6.3``: torch's local version, else the CUDA runtime that comes with it;
    ``""`` for CUDA of unknown version.
    """
    _, _, local = packages.get("torch", "").partition("+")
    if local:
        return local
    runtime = next((version for name, version in packages.items() if _CUDA_RUNTIME.fullmatch(name)), None)
    if runtime is not None:
        return "cu" + "".join(runtime.split(".")[:2])
    return "" if any(name.startswith("nvidia-") for name in packages) else CPU
