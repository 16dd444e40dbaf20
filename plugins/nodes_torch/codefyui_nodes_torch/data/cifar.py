"""The files of CIFAR-10, binary and Python version (A. Krizhevsky's page of the data set)."""

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from codefyui_core.plugin import CodefyError

_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE


def _latin1(text: str, _codec: str) -> bytes:
    return text.encode("latin1")


_ALLOWED: Mapping[str, Any] = MappingProxyType(
    {
        "numpy.core.multiarray._reconstruct": np.empty(0).__reduce__()[0],
        "numpy._core.multiarray._reconstruct": np.empty(0).__reduce__()[0],
        "numpy.ndarray": np.ndarray,
        "numpy.dtype": np.dtype,
        "_codecs.encode": _latin1,
    }
)
"""Arrays as old and new numpy name them, and the way in which protocol 2 writes bytes."""


class _ArraysOnly(pickle.Unpickler):
    """Reads dicts, lists, numbers, texts and plain arrays; any other name is refused before it is touched."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        name = f"{module_name}.{global_name}"
        if name not in _ALLOWED:
            raise pickle.UnpicklingError(f"it wants to load {name}")
        return _ALLOWED[name]


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
