"""How a classifier divides the plane."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port

from ..base import shape_of
from .arrays import Array, to_array
from .labels import classes_of, label_texts
from .plane import SIDE_PX, TITLE, PlaneNode, scatter

if TYPE_CHECKING:
    from .drawing import Sheet


class DecisionBoundary(PlaneNode):
    """Asks ``model.predict(array (M, 2) float32)`` for the labels of a grid over the range of ``x_train``,
    widened at each side by 0.5 and 5 % of the range. Classes that only the model knows get colors of their own.
    """

    type = "DecisionBoundary"
    description = "Colors the plane by what a classifier of two features predicts, with its training points."
    inputs = (
        Port(name="model", type=DataType.MODEL, description="A fitted classifier with predict"),
        Port(name="x_train", type=DataType.TENSOR, description="(N, 2)"),
        Port(name="y_train", type=DataType.LIST, description="One label a point"),
    )
    params = (
        Param(
            name="grid_steps",
            kind=ParamKind.INT,
            default=200,
            minimum=20,
            maximum=500,
            description="Predictions along each axis",
        ),
        Param(
            name="show_support_vectors",
            kind=ParamKind.BOOL,
            default=False,
            description="Ring the support vectors of a model that has them",
        ),
        TITLE,
    )

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        from .drawing import sheet

        model = inputs.get("model")
        points = self.points(inputs, "x_train")
        labels = self.labels(inputs, "y_train", len(points))
        steps = params["grid_steps"]
        low, high = _range(points)
        predicted = self._predict(model, _grid(low, high, steps))
        known = classes_of(labels)
        classes = known + [name for name in classes_of(predicted) if name not in known]
        with sheet(SIDE_PX, SIDE_PX) as paper:
            _regions(paper, predicted, classes, steps, (low, high))
            scatter(paper, points, labels, known)
            if params["show_support_vectors"]:
                _rings(paper, model)
            paper.axes.set_xlabel("x0")
            paper.axes.set_ylabel("x1")
            paper.title(params["title"])
            return {"image": paper.png()}

    def _predict(self, model: Any, grid: Array) -> list[str]:
        predict = getattr(model, "predict", None)
        if not callable(predict):
            raise self.unfit(f"model needs a fitted classifier with predict; it got {shape_of(model)}")
        texts = label_texts(predict(grid.astype(np.float32)))
        if len(texts) != len(grid):
            raise self.unfit(f"model predicted {len(texts)} labels for {len(grid)} points")
        return texts


def _range(points: Array) -> tuple[Array, Array]:
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.5 + 0.05 * (high - low)
    return low - margin, high + margin


def _grid(low: Array, high: Array, steps: int) -> Array:
    """(steps², 2), row by row from the lowest x1."""
    across, up = np.linspace(low[0], high[0], steps), np.linspace(low[1], high[1], steps)
    return np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)


def _regions(
    paper: "Sheet", predicted: Sequence[str], classes: Sequence[str], steps: int, span: tuple[Array, Array]
) -> None:
    from .drawing import color_map

    place = {name: index for index, name in enumerate(classes)}
    indices = np.array([place[name] for name in predicted]).reshape(steps, steps)
    (left, bottom), (right, top) = span
    paper.axes.imshow(
        color_map(indices, alpha=0.3),
        origin="lower",
        extent=(left, right, bottom, top),
        aspect="auto",
        interpolation="nearest",
    )


def _rings(paper: "Sheet", model: Any) -> None:
    vectors = getattr(model, "support_vectors_", getattr(model, "support_vectors", None))
    if vectors is None:
        return
    array = to_array(vectors)
    paper.axes.scatter(array[:, 0], array[:, 1], s=120, facecolors="none", edgecolors="black")
