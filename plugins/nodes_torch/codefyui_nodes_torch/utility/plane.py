"""Points in the plane with their labels: what the drawings of two features share."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from codefyui_core.plugin import DataType, Param, ParamKind, Port

from ..base import TorchNode, shape_of
from .arrays import Array, to_array
from .labels import label_texts

if TYPE_CHECKING:
    from .drawing import Sheet

SIDE_PX = 600
_IMAGE = Port(name="image", type=DataType.STRING, media="image", description="PNG as base64")
TITLE = Param(name="title", kind=ParamKind.STRING, default="", description="Above the drawing")


class PlaneNode(TorchNode):
    category = "Utility"
    outputs = (_IMAGE,)

    def points(self, inputs: Mapping[str, Any], port: str) -> Array:
        """The points (N, 2), finite, N at least 1.

        Raises: UnfitError.
        """
        value = inputs.get(port)
        try:
            array = to_array(value).astype(np.float64)
        except ValueError as error:
            raise self.unfit(f"{port} {error}") from error
        if array.ndim != 2 or array.shape[1] != 2 or not len(array):
            raise self.unfit(f"{port} needs the shape (N, 2) with N at least 1; it got {shape_of(value)}")
        if not np.isfinite(array).all():
            raise self.unfit(f"{port} holds NaN or infinity; remove those rows first")
        return array

    def labels(self, inputs: Mapping[str, Any], port: str, count: int) -> list[str]:
        """One text a point.

        Raises: UnfitError, when there are more or fewer.
        """
        value = inputs.get(port)
        if value is None or isinstance(value, str):
            raise self.unfit(f"{port} needs a list of labels; it got {shape_of(value)}")
        texts = label_texts(value)
        if len(texts) != count:
            raise self.unfit(f"{port} has {len(texts)} labels for {count} points")
        return texts


def scatter(paper: "Sheet", points: Array, labels: Sequence[str], classes: Sequence[str]) -> None:
    """Each class in a color of its own, and a legend."""
    from .drawing import color

    for index, name in enumerate(classes):
        chosen = points[[label == name for label in labels]]
        paper.axes.scatter(
            chosen[:, 0], chosen[:, 1], color=color(index), label=str(index), edgecolors="white"
        )
    paper.legend(classes)
