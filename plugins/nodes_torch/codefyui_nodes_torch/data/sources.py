"""Data sets held in memory: pictures and tables with their labels."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset


class Pictures(TorchDataset[tuple[Tensor, int]]):
    """Labelled pictures: items are (float32 (C,H,W) in [-1,1], int).

    ``pixels`` is (N,C,H,W), ``white`` the pixel value that becomes 1.
    """

    value_range = (-1.0, 1.0)

    def __init__(self, pixels: Tensor, labels: Tensor, *, white: float) -> None:
        self.pixels, self.labels, self.white = pixels, labels, white

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        unit = self.pixels[index].float() / self.white
        return (unit - 0.5) / 0.5, int(self.labels[index])


class Table(TorchDataset[tuple[Tensor, int]]):
    """Labelled rows: items are (float32 (F,) as measured, int)."""

    def __init__(self, rows: Tensor, labels: Tensor) -> None:
        self.rows, self.labels = rows, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self.rows[index], int(self.labels[index])


def tensor_of(values: Any, dtype: torch.dtype) -> Tensor:
    """A tensor with memory of its own."""
    return torch.tensor(np.asarray(values), dtype=dtype)
