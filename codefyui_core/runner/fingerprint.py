"""The environment fingerprint: what numbers depend on. The same in the helper and in a run's process."""

import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from codefyui_core._version import __version__
from codefyui_core.loading import Registry
from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import PluginState

NUMERIC_VARIABLES = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_LAUNCH_BLOCKING",
    "MKL_CBWR",
    "NVIDIA_TF32_OVERRIDE",
    "OPENBLAS_CORETYPE",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)


def fingerprint(registry: Registry, accelerators: tuple[str, ...]) -> JsonObject:
    """Version and commit, Python, torch build, accelerators, plugin revisions, variables that change numbers.

    ``accelerators``: names of the machine's cards, as seen before a run's devices are narrowed.
    """
    return {
        "codefyui": {"version": __version__, "commit": commit()},
        "python": platform.python_version(),
        "platform": f"{sys.platform}-{platform.machine()}",
        "torch": _torch(),
        "accelerators": list(accelerators),
        "plugins": {
            info.distribution: info.revision or info.version
            for info in registry.plugins
            if info.state is PluginState.LOADED
        },
        "variables": {name: os.environ[name] for name in NUMERIC_VARIABLES if name in os.environ},
    }


def digest(facts: JsonObject) -> str:
    """SHA-256 (hex) of the canonical JSON."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def commit() -> str | None:
    """Of the checkout that this package lies in; None for an installed wheel."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _torch() -> JsonObject | None:
    torch = sys.modules.get("torch")
    if torch is None:
        try:
            import torch
        except ImportError:
            return None
    return {"version": str(torch.__version__), "cuda": torch.version.cuda, "hip": torch.version.hip}
