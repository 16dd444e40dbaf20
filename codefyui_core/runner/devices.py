"""Which devices torch can compute on here. Called in the helper alone: looking starts CUDA."""

import platform
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from codefyui_core.wire.messages import DeviceInfo

from .memory import available_bytes, total_bytes


def devices() -> tuple[DeviceInfo, ...]:
    """The CPU always; accelerators when a node pack has imported torch."""
    cpu = DeviceInfo(
        device="cpu",
        name=_cpu_name(),
        memory_total_bytes=total_bytes(),
        memory_free_bytes=available_bytes(),
    )
    return (cpu, *_accelerators())


def _accelerators() -> Iterator[DeviceInfo]:
    torch = sys.modules.get("torch")
    if torch is None:
        return
    with suppress(RuntimeError, AssertionError):
        for index in range(torch.cuda.device_count()):
            found = torch.cuda.get_device_properties(index)
            uuid = str(getattr(found, "uuid", ""))
            yield DeviceInfo(
                device=f"cuda:{index}",
                name=found.name,
                uuid=uuid if not uuid or uuid.startswith("GPU-") else f"GPU-{uuid}",
                memory_total_bytes=int(found.total_memory),
            )
    if torch.backends.mps.is_available():
        yield DeviceInfo(device="mps:0", name=platform.processor() or "Apple GPU")


def _cpu_name() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
