"""Memory of this machine and its NVIDIA cards, without torch; for both planes."""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from codefyui_core.wire.messages import DeviceInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One NVIDIA card, as its driver reports it (NVML)."""

    name: str
    uuid: str
    total_bytes: int
    free_bytes: int


def cards() -> tuple[Card, ...]:
    """In the driver's order; none when there is no driver, or no library to ask it."""
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    found = []
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            with suppress(pynvml.NVMLError):
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
                found.append(
                    Card(
                        name=_text(pynvml.nvmlDeviceGetName(handle)),
                        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
                        total_bytes=int(memory.total),
                        free_bytes=int(memory.free),
                    )
                )
    except pynvml.NVMLError:
        return tuple(found)
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
    return tuple(found)


def free_memory(devices: Iterable[DeviceInfo]) -> dict[str, int]:
    """Bytes by device; those that nobody can tell are left out. Cards are known by their UUID."""
    found: dict[str, int] = {}
    known = {card.uuid: card.free_bytes for card in cards()}
    for device in devices:
        free = available_bytes() if device.device == "cpu" else known.get(device.uuid)
        if free is not None:
            found[device.device] = free
    return found


def total_bytes() -> int | None:
    """Of the machine's main memory."""
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(ImportError):
        import psutil

        return int(psutil.virtual_memory().total)
    return None


def available_bytes() -> int | None:
    """What programs can get without swapping (``MemAvailable`` of proc(5))."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    with suppress(ImportError):
        import psutil

        return int(psutil.virtual_memory().available)
    return None


def _text(value: str | bytes) -> str:
    """Old versions of the library answer bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
