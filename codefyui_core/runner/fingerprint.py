"""The environment that results depend on. Made alike by the helper and by each run, so that equal means equal."""

import hashlib
import platform
import sys
from collections.abc import Mapping

from codefyui_core._version import __version__
from codefyui_core.graph.json_text import canonical
from codefyui_core.loading import Registry
from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import PluginState

from .code_state import CORE, commit_of, file_digests, revision_of, torch_build
from .memory import cards


def fingerprint(registry: Registry, origin: Mapping[str, str]) -> JsonObject:
    """``origin`` are the numerics variables before anything was narrowed for a run; accelerators are all that
    the driver has, whatever a run may see of them.
    """
    plugins: JsonObject = {
        info.distribution: {
            "version": info.version,
            "revision": info.revision or revision_of(info.distribution),
        }
        for info in registry.plugins
        if info.state is not PluginState.BLOCKED and info.state is not PluginState.FAILED
    }
    return {
        "codefyui": {"version": __version__, "commit": commit_of(CORE)},
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": f"{platform.system()} {platform.machine()}",
        "torch": torch_build(),
        "accelerators": [
            {"name": card.name, "uuid": card.uuid, "memory_total_bytes": card.total_bytes} for card in cards()
        ],
        "plugins": plugins,
        "custom_nodes": file_digests(folder for catalog in registry.catalogs for folder in catalog.watch),
        "environment": dict(sorted(origin.items())),
    }


def digest(document: JsonObject) -> str:
    """SHA-256 (hex) of the canonical JSON."""
    return hashlib.sha256(canonical(document)).hexdigest()


def numerics() -> JsonObject:
    """Torch's switches that change results, as they are now.

    https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return {"torch": None}
    return {
        "torch": torch.__version__,
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_enabled": torch.backends.cudnn.enabled,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
    }
