"""Data of many kinds as arrays of numbers, for drawing."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, np.dtype[Any]]


def to_array(value: object) -> Array:
    """A tensor, array, number or evenly nested list as a numeric array; bools stay bools.

    Raises: ValueError, which says what came.
    """
    if isinstance(value, str | bytes | Mapping) or value is None:
        raise ValueError(f"needs numbers to draw; it got {type(value).__name__}")
    if isinstance(value, list | tuple) and any(isinstance(item, torch.Tensor) for item in value):
        return _of_list(value)
    if isinstance(value, torch.Tensor):
        return _of_tensor(value)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"needs lists of one length; they differ ({error})") from error
    if array.dtype.kind not in "biuf":
        raise ValueError(f"needs real numbers to draw; it got {type(value).__name__} with {array.dtype}")
    return array


def _of_tensor(tensor: torch.Tensor) -> Array:
    if tensor.is_complex():
        raise ValueError(f"needs real numbers to draw; it got {tensor.dtype}")
    plain = tensor.detach().cpu()
    return (
        plain.float() if plain.is_floating_point() and plain.dtype is not torch.float64 else plain
    ).numpy()


def _of_list(items: list[Any] | tuple[Any, ...]) -> Array:
    arrays = [to_array(item) for item in items]
    shapes = sorted({array.shape for array in arrays})
    if len(shapes) > 1:
        raise ValueError(f"needs tensors of one shape; it got {', '.join(map(str, shapes))}")
    return np.stack(arrays)
