"""Arrays as one picture: which axes are channels, grids of batches, and values in [0, 1]."""

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
CHANNELS = (1, 3, 4)
"""Grey, RGB, RGBA."""


def picture(array: Array) -> Array:
    """(H, W), (C, H, W), (H, W, C) or (N, C, H, W) as (H, W) or (H, W, C) in [0, 1].

    A batch becomes a grid; so do the channels of an image whose count isn't 1, 3 or 4 (feature maps).

    Raises: ValueError, for another number of axes or nothing to show.
    """
    if array.ndim not in {2, 3, 4} or array.size == 0:
        raise ValueError(
            f"needs the shape (H, W), (C, H, W), (H, W, C) or (N, C, H, W) for an image; it got {array.shape}"
        )
    unit = unit_range(array)
    if unit.ndim == 4 and unit.shape[0] > 1:
        return grid([_one(image if image.shape[0] in CHANNELS else image[:1]) for image in unit])
    return _one(unit[0] if unit.ndim == 4 else unit)


def unit_range(array: Array) -> Array:
    """Values as float32 in [0, 1]: bytes are divided by 255; others stay when they are inside already, else
    they are stretched from their minimum and maximum. What is not finite becomes 0.
    """
    if array.dtype == np.uint8:
        return np.asarray(array.astype(np.float32) / 255)
    values = array.astype(np.float64)
    finite = np.isfinite(values)
    low, high = (values[finite].min(), values[finite].max()) if finite.any() else (0.0, 0.0)
    if low < 0 or high > 1:
        values = (values - low) / (high - low or 1.0)
    return np.asarray(np.where(finite, values, 0.0).clip(0, 1).astype(np.float32))


def grid(images: list[Array]) -> Array:
    """Equal images in a near-square grid with gaps of one black pixel."""
    columns = math.ceil(math.sqrt(len(images)))
    rows = math.ceil(len(images) / columns)
    height, width = images[0].shape[:2]
    sheet = np.zeros((rows * (height + 1) - 1, columns * (width + 1) - 1, *images[0].shape[2:]), np.float32)
    for index, image in enumerate(images):
        row, column = divmod(index, columns)
        top, left = row * (height + 1), column * (width + 1)
        sheet[top : top + height, left : left + width] = image
    return sheet


def _one(image: Array) -> Array:
    """One image as (H, W) or (H, W, C)."""
    if image.ndim == 2:
        return image
    if image.shape[0] in CHANNELS:
        image = np.moveaxis(image, 0, -1)
    if image.shape[-1] in CHANNELS:
        return image[..., 0] if image.shape[-1] == 1 else image
    return grid(list(image))
