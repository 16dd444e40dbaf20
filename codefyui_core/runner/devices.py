"""Which devices this machine offers. Called in the helper: it may import torch, the planes may not."""

import platform
from collections.abc import Sequence
from typing import Any

import psutil

from codefyui_core.wire.messages import DeviceInfo


def devices() -> tuple[DeviceInfo, ...]:
    """CPU first, then CUDA (or ROCm) cards as torch numbers them, then Apple's GPU. Without torch: CPU alone."""
    found = [cpu()]
    try:
        import torch
    except ImportError:
        return tuple(found)
    return (*found, *_cuda(torch), *_mps(torch))


def cpu() -> DeviceInfo:
    """The processor; its memory is the machine's."""
    memory = psutil.virtual_memory()
    name = platform.processor() or platform.machine()
    return DeviceInfo(
        device="cpu",
        name=f"{name}, {psutil.cpu_count() or 1} threads",
        memory_total_bytes=memory.total,
        memory_free_bytes=memory.available,
    )


def _cuda(torch: Any) -> Sequence[DeviceInfo]:
    if not torch.cuda.is_available():
        return ()
    return [_card(torch, index) for index in range(torch.cuda.device_count())]


def _card(torch: Any, index: int) -> DeviceInfo:
    properties = torch.cuda.get_device_properties(index)
    return DeviceInfo(
        device=f"cuda:{index}",
        name=properties.name,
        uuid=str(getattr(properties, "uuid", "")),
        memory_total_bytes=properties.total_memory,
    )


def _mps(torch: Any) -> Sequence[DeviceInfo]:
    backend = getattr(torch.backends, "mps", None)
    if backend is None or not backend.is_available():
        return ()
    return [DeviceInfo(device="mps:0", name="Apple GPU", memory_total_bytes=psutil.virtual_memory().total)]
