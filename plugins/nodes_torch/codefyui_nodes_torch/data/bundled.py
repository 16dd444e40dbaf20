"""The data sets that come with scikit-learn: on every machine, without a download."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from sklearn.model_selection import train_test_split
from torch.utils.data import Dataset as TorchDataset

from .sources import Pictures, Table, tensor_of

TEST_SHARE = 0.2
_SPLIT_SEED = 42
_DIGITS_WHITE = 16.0


def _pictures(rows: Any, labels: Any) -> TorchDataset[Any]:
    pixels = tensor_of(rows, torch.float32).reshape(-1, 1, 8, 8)
    return Pictures(pixels, tensor_of(labels, torch.int64), white=_DIGITS_WHITE)


def _table(rows: Any, labels: Any) -> TorchDataset[Any]:
    return Table(tensor_of(rows, torch.float32), tensor_of(labels, torch.int64))


BUNDLED: Mapping[str, tuple[Callable[..., Any], Callable[[Any, Any], TorchDataset[Any]]]] = MappingProxyType(
    {
        "Digits": (datasets.load_digits, _pictures),
        "Iris": (datasets.load_iris, _table),
        "Wine": (datasets.load_wine, _table),
        "BreastCancer": (datasets.load_breast_cancer, _table),
    }
)


def bundled(name: str, split: str) -> TorchDataset[Any]:
    """The ``train`` (four fifths) or ``test`` part; each class is split alike, always the same way."""
    load, make = BUNDLED[name]
    rows, labels = load(return_X_y=True)
    train, test = train_test_split(
        np.arange(len(labels)), test_size=TEST_SHARE, random_state=_SPLIT_SEED, stratify=labels
    )
    chosen = train if split == "train" else test
    return make(rows[chosen], labels[chosen])
