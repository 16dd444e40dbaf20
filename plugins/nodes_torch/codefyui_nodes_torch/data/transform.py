"""A view of a picture data set with other sizes or values; the data set itself stays as it is."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import Dataset as TorchDataset
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port

from ..base import TorchNode, UnfitError, shape_of

_CHANNELS = frozenset({1, 3, 4})
_BYTE = 255.0


class TransformedPictures(TorchDataset[tuple[Tensor, Any]]):
    """Pictures of another data set, float32 (C,H,W): resized where asked, in [0,1] or, normalized, [-1,1]."""

    def __init__(self, inner: Any, *, resize: int, normalize: bool, rescale: bool) -> None:
        self.inner, self.resize, self.normalize, self.rescale = inner, resize, normalize, rescale
        self._inner_range = _range_of(inner)
        unit = (-1.0, 1.0) if normalize else (0.0, 1.0)
        self.value_range = unit if rescale else self._inner_range

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        image, label = self.inner[index]
        picture = as_picture(image)
        if self.rescale:
            low, high = self._inner_range
            picture = (picture - low) / (high - low)
        if self.resize:
            label = _resized_mask(label, picture, self.resize)
            picture = _resized(picture, self.resize)
        return ((picture - 0.5) / 0.5 if self.normalize else picture), label


def as_picture(image: Any) -> Tensor:
    """A tensor (C,H,W) float32, of a tensor or of a PIL picture, whose bytes become [0,1].

    Raises: UnfitError for anything else.
    """
    if isinstance(image, Tensor):
        picture = image.float() / _BYTE if image.dtype is torch.uint8 else image.float()
    elif hasattr(image, "getbands"):
        pixels = np.array(image)
        pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
        picture = torch.from_numpy(pixels).permute(2, 0, 1).float() / _BYTE
    else:
        raise _no_picture(image)
    if picture.dim() != 3 or picture.shape[0] not in _CHANNELS:
        raise _no_picture(image)
    return picture


def _no_picture(item: Any) -> UnfitError:
    return UnfitError(
        "Transform: dataset needs pictures (channels, height, width) with 1, 3 or 4 channels; its items are"
        f" {shape_of(item)}. For tables, use Normalize before the split."
    )


def _range_of(dataset: Any) -> tuple[float, float]:
    """The values of black and white: what the data set says, else -1 and 1 when its first picture has
    negative values, 0 and 1 when not.
    """
    stated = getattr(dataset, "value_range", None)
    if stated is not None:
        return float(stated[0]), float(stated[1])
    first = as_picture(dataset[0][0])
    return (-1.0, 1.0) if float(first.min()) < 0 else (0.0, 1.0)


def _resized(picture: Tensor, size: int) -> Tensor:
    """Bilinear, averaging over all covered pixels when it gets smaller."""
    batch = interpolate(
        picture.unsqueeze(0), size=(size, size), mode="bilinear", align_corners=False, antialias=True
    )
    return batch.squeeze(0)


def _resized_mask(label: Any, picture: Tensor, size: int) -> Any:
    """A mask of the picture's size gets its new size too, without mixing classes."""
    if not isinstance(label, Tensor) or label.shape[-2:] != picture.shape[-2:]:
        return label
    planes = label.reshape(1, -1, *label.shape[-2:]).double()
    resized = interpolate(planes, size=(size, size), mode="nearest")
    return resized.reshape(*label.shape[:-2], size, size).to(label.dtype)


class Transform(TorchNode):
    type = "Transform"
    category = "Data"
    description = "The same pictures resized, in [0,1] or, normalized, in [-1,1]. Upstream stays as it is."
    inputs = (Port(name="dataset", type=DataType.DATASET, description="Items (picture, label)"),)
    outputs = (Port(name="dataset", type=DataType.DATASET, description="A view of it"),)
    params = (
        Param(
            name="resize",
            kind=ParamKind.INT,
            default=0,
            minimum=0,
            description="New height and width; 0 as is",
        ),
        Param(
            name="normalize", kind=ParamKind.BOOL, default=True, description="Values from -1 to 1, not 0 to 1"
        ),
        Param(
            name="to_tensor",
            kind=ParamKind.BOOL,
            default=True,
            description="Scale the values; off keeps those of the data set",
        ),
    )

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        dataset, resize = inputs["dataset"], int(params["resize"])
        normalize, rescale = bool(params["normalize"]), bool(params["to_tensor"])
        if normalize and not rescale:
            raise self.unfit("normalize needs to_tensor on; switch both on, or both off")
        if not (resize or rescale):
            return {"dataset": dataset}
        self._check(dataset)
        return {"dataset": TransformedPictures(dataset, resize=resize, normalize=normalize, rescale=rescale)}

    def _check(self, dataset: Any) -> None:
        if not len(dataset):
            raise self.unfit("dataset is empty")
        item = dataset[0]
        if not isinstance(item, list | tuple) or len(item) != 2:
            raise self.unfit("dataset needs items of two parts, (picture, label)")
        as_picture(item[0])
