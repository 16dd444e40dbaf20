"""The files of CIFAR-10, binary and Python version (A. Krizhevsky's page of the data set)."""

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from codefyui_core.plugin import CodefyError

_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE
_ALLOWED = frozenset({("multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype")})


class _ArraysOnly(pickle.Unpickler):
    """Reads dicts, lists, numbers, texts and plain arrays; any other class is refused before it is touched."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name.rsplit(".", 1)[-1], global_name) not in _ALLOWED or not module_name.startswith(
            "numpy"
        ):
            raise pickle.UnpicklingError(f"it wants to load {module_name}.{global_name}")
        if global_name == "_reconstruct":
            return np.empty(0).__reduce__()[0]
        return np.ndarray if global_name == "ndarray" else np.dtype


def read_binary(path: Path) -> tuple[Tensor, Tensor]:
    """Pictures (N,3,32,32) and labels (N), uint8: rows of one label and 3072 bytes.

    Raises: CodefyError ``files.unreadable``.
    """
    data = path.read_bytes()
    if not data or len(data) % (_PIXELS + 1):
        raise _unreadable(path, f"its {len(data)} bytes aren't rows of {_PIXELS + 1}")
    rows = torch.frombuffer(bytearray(data), dtype=torch.uint8).reshape(-1, _PIXELS + 1)
    return rows[:, 1:].reshape(-1, 3, _SIDE, _SIDE).clone(), rows[:, 0].clone()


def read_python(path: Path) -> tuple[Tensor, Tensor]:
    """The same from a pickled batch, of which only plain arrays and numbers are read.

    Raises: CodefyError ``files.unreadable``.
    """
    try:
        batch = _ArraysOnly(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except Exception as problem:
        raise _unreadable(path, f"no CIFAR batch: {problem}") from problem
    return _checked(path, batch)


def _checked(path: Path, batch: Any) -> tuple[Tensor, Tensor]:
    pixels = batch.get("data") if isinstance(batch, Mapping) else None
    labels = batch.get("labels") if isinstance(batch, Mapping) else None
    if (
        not isinstance(pixels, np.ndarray)
        or pixels.dtype != np.uint8
        or pixels.shape != (len(labels or ()), _PIXELS)
    ):
        raise _unreadable(path, "no data and labels in it")
    return torch.from_numpy(pixels.copy()).reshape(-1, 3, _SIDE, _SIDE), torch.tensor(labels)


def _unreadable(path: Path, why: str) -> CodefyError:
    return CodefyError(
        f"{path.name} can't be read ({why}); fetch it anew and put it at {path}", code="files.unreadable"
    )
