"""A drawing of whatever comes: a line, a histogram, a heatmap or an image."""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port

from ..base import TorchNode
from .arrays import Array, to_array
from .images import picture

if TYPE_CHECKING:
    from .drawing import Sheet

BINS = 50


class Visualize(TorchNode):
    """A PNG of 800 × 600 pixels, as base64 text.

    line: one axis as it is, more flattened. histogram: 50 bins of all finite values. heatmap: one axis in a
    square, more than two as rows of the last. image: see ``images.picture``.
    """

    type = "Visualize"
    category = "Utility"
    description = (
        "Draws numbers: as a line, a histogram, a heatmap or an image. A batch of images becomes a grid."
    )
    inputs = (Port(name="data", type=DataType.ANY, description="A tensor, a number or a list of either"),)
    outputs = (Port(name="image", type=DataType.STRING, media="image", description="PNG as base64"),)
    params = (
        Param(name="title", kind=ParamKind.STRING, default="", description="Above the drawing"),
        Param(
            name="plot_type",
            kind=ParamKind.SELECT,
            default="line",
            options=("line", "histogram", "heatmap", "image"),
            description="How it is drawn",
        ),
    )

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        try:
            array = to_array(inputs.get("data"))
            if array.size == 0:
                raise ValueError(f"has nothing to draw; its shape is {array.shape}")
            return {"image": _drawn(array, params["plot_type"], params["title"])}
        except ValueError as error:
            raise self.unfit(f"data {error}") from error


def _drawn(array: Array, plot_type: str, title: str) -> str:
    from .drawing import sheet

    draw = _PLOTS[plot_type]
    with sheet(800, 600) as paper:
        draw(paper, array)
        paper.title(title)
        return paper.png()


def _line(paper: "Sheet", array: Array) -> None:
    values = array.reshape(-1).astype(np.float64)
    paper.axes.plot(values, marker="o" if values.size == 1 else "")
    paper.axes.grid(visible=True, alpha=0.3)


def _histogram(paper: "Sheet", array: Array) -> None:
    values = array.reshape(-1).astype(np.float64)
    finite = values[np.isfinite(values)]
    if not finite.size:
        raise ValueError("has no finite value for a histogram")
    paper.axes.hist(finite, bins=BINS)
    if finite.size < values.size:
        paper.axes.set_xlabel(f"{values.size - finite.size} values that are not finite are left out")


def _heatmap(paper: "Sheet", array: Array) -> None:
    cells = np.ma.masked_invalid(_table(array.astype(np.float64)))
    drawn = paper.axes.imshow(cells, cmap="viridis", aspect="auto", interpolation="nearest")
    paper.axes.figure.colorbar(drawn, ax=paper.axes)


def _image(paper: "Sheet", array: Array) -> None:
    shown = picture(array)
    paper.axes.imshow(shown, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    paper.axes.set_axis_off()


def _table(values: Array) -> Array:
    """Two axes. A single one fills a square row by row; cells without a value stay blank."""
    if values.ndim >= 2:
        return values.reshape(-1, values.shape[-1])
    side = math.ceil(math.sqrt(values.size))
    cells = np.full(side * side, np.nan)
    cells[: values.size] = values.reshape(-1)
    return cells.reshape(side, side)


_PLOTS: Mapping[str, Callable[["Sheet", Array], None]] = {
    "line": _line,
    "histogram": _histogram,
    "heatmap": _heatmap,
    "image": _image,
}
