"""The devices that an agent offers, and what a run's process sees of those it was given."""

from collections.abc import Mapping, Sequence

from codefyui_core.errors import StartProblem
from codefyui_core.wire.messages import DeviceInfo


def offered(found: Sequence[DeviceInfo], asked: Sequence[str]) -> tuple[DeviceInfo, ...]:
    """What ``--devices`` leaves of a machine's accelerators; the CPU is always offered. Nothing asked: all.

    Raises: StartProblem for a device that the machine doesn't have.
    """
    if not asked:
        return tuple(found)
    have = {device.device for device in found}
    for name in asked:
        if name not in have:
            known = ", ".join(sorted(have)) or "none"
            raise StartProblem(f"--devices: this machine has no {name}. It has: {known}.")
    return tuple(device for device in found if device.device in asked or device.device == "cpu")


def read_devices(text: str) -> tuple[str, ...]:
    """``cuda:0,cuda:1``."""
    return tuple(part for piece in text.split(",") if (part := piece.strip()))


def narrowed_environ(
    devices: Sequence[str], known: Sequence[DeviceInfo], environ: Mapping[str, str]
) -> dict[str, str]:
    """``CUDA_VISIBLE_DEVICES`` for a run: its own cards and no other, by UUID where one is known. A list that
    the agent itself was given (by a batch system) is the one that ``cuda:N`` counts in.
    """
    uuids = {device.device: device.uuid for device in known}
    inherited = [part.strip() for part in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.strip()]
    cards = [device for device in devices if device.startswith("cuda")]
    return {"CUDA_VISIBLE_DEVICES": ",".join(_card(card, uuids, inherited) for card in cards)}


def _card(device: str, uuids: Mapping[str, str], inherited: Sequence[str]) -> str:
    if uuids.get(device):
        return uuids[device]
    index = int(device.partition(":")[2] or 0)
    return inherited[index] if index < len(inherited) else str(index)


def computes_on(devices: Sequence[str]) -> str:
    """What nodes compute on, after the narrowing: the first of the given cards is ``cuda:0``."""
    if any(device.startswith("cuda") for device in devices):
        return "cuda:0"
    return next((device.partition(":")[0] for device in devices if device.startswith("mps")), "cpu")
