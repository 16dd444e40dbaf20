"""Figures as base64 PNG texts. Importing it imports matplotlib, so nodes do it when they draw.

Figures are made without pyplot, which would keep each one until it is closed.
"""

import base64
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

Array = np.ndarray
DPI = 100
_ONE_AT_A_TIME = Lock()
"""matplotlib shares caches of fonts and texts between figures and is not safe in several threads."""

TAB10 = (
    "#1f77b4",
    "#ff7f0e",
    "#2ca02c",
    "#d62728",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#7f7f7f",
    "#bcbd22",
    "#17becf",
)
"""The ten colors of Tableau's first palette, as in matplotlib; they repeat after ten classes."""


class Sheet:
    """One pair of axes on a figure of a fixed size."""

    def __init__(self, figure: Figure) -> None:
        self._figure = figure
        self.axes: Axes = figure.add_subplot()

    def title(self, text: str) -> None:
        """Show ``text`` as it is: a dollar sign begins no formula."""
        self.axes.set_title(text, parse_math=False)

    def legend(self, names: Sequence[str]) -> None:
        """Name what was drawn with labels ``0``, ``1``, …; names may begin with anything."""
        handles = self.axes.get_legend_handles_labels()[0]
        legend = self.axes.legend(handles, ["?"] * len(handles))
        for shown, name in zip(legend.get_texts(), names, strict=True):
            shown.set_parse_math(False)
            shown.set_text(name)

    def png(self) -> str:
        """The figure as base64 text."""
        buffer = io.BytesIO()
        self._figure.savefig(buffer, format="png")
        return base64.b64encode(buffer.getvalue()).decode("ascii")


@contextmanager
def sheet(width_px: int, height_px: int) -> Iterator[Sheet]:
    """A new figure; nobody else draws meanwhile."""
    figure = Figure(figsize=(width_px / DPI, height_px / DPI), dpi=DPI, layout="tight")
    FigureCanvasAgg(figure)
    with _ONE_AT_A_TIME:
        yield Sheet(figure)


def color(index: int) -> str:
    """The color of a class."""
    return TAB10[index % len(TAB10)]


def color_map(indices: Array, alpha: float) -> Array:
    """Class indices (H, W) as colors (H, W, 4)."""
    table = np.array([to_rgba(name, alpha) for name in TAB10])
    return np.asarray(table[indices % len(TAB10)])
