"""Moves input tensors to where a node computes. Modules and data sets stay where they are."""

import sys
from typing import Any


def aligned(value: Any, device: str) -> Any:
    """Tensors in ``value`` (also in lists, tuples and dicts) on ``device``; the same object when none moves.

    MPS has no float64: such tensors become float32 on their way there.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return value
    return _moved(value, torch.device(device), torch)


def _moved(value: Any, device: Any, torch: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.device == device or (value.device.type == device.type and device.index is None):
            return value
        narrow = device.type == "mps" and value.dtype is torch.float64
        return value.to(device, torch.float32) if narrow else value.to(device)
    if type(value) is list or type(value) is tuple:
        moved = [_moved(item, device, torch) for item in value]
        same = all(new is old for new, old in zip(moved, value, strict=True))
        return value if same else type(value)(moved)
    if type(value) is dict:
        changed = {key: _moved(item, device, torch) for key, item in value.items()}
        return value if all(changed[key] is value[key] for key in value) else changed
    return value


def usable(device: str) -> str:
    """``device``, or cpu when torch can't use it here."""
    torch = sys.modules.get("torch")
    if device == "cpu" or torch is None:
        return "cpu"
    kind, _, index = device.partition(":")
    if kind == "cuda" and torch.cuda.is_available():
        return device if not index or int(index) < torch.cuda.device_count() else "cuda"
    if kind == "mps" and torch.backends.mps.is_available():
        return "mps"
    return "cpu"
