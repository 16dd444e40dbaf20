"""Points in the plane, and how a classifier divides it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port

from ..base import TorchNode, shape_of
from .arrays import Array, to_array
from .labels import classes_of, label_texts

if TYPE_CHECKING:
    from .drawing import Sheet

SIDE_PX = 600
_IMAGE = Port(name="image", type=DataType.STRING, media="image", description="PNG as base64")
_TITLE = Param(name="title", kind=ParamKind.STRING, default="", description="Above the drawing")


class _Plane(TorchNode):
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


class ScatterPlot2D(_Plane):
    type = "ScatterPlot2D"
    description = "Points in the plane, colored by class when labels are wired."
    inputs = (
        Port(name="points", type=DataType.TENSOR, description="(N, 2)"),
        Port(name="labels", type=DataType.LIST, optional=True, description="One a point"),
    )
    params = (_TITLE,)

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        from .drawing import sheet

        points = self.points(inputs, "points")
        wired = inputs.get("labels") is not None
        labels = self.labels(inputs, "labels", len(points)) if wired else []
        with sheet(SIDE_PX, SIDE_PX) as paper:
            if wired:
                _scatter(paper, points, labels, classes_of(labels))
            else:
                paper.axes.scatter(points[:, 0], points[:, 1])
            paper.axes.set_aspect("equal", adjustable="datalim")
            paper.title(params["title"])
            return {"image": paper.png()}


class DecisionBoundary(_Plane):
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
        _TITLE,
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
            _scatter(paper, points, labels, known)
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


def _scatter(paper: "Sheet", points: Array, labels: Sequence[str], classes: Sequence[str]) -> None:
    from .drawing import color

    for index, name in enumerate(classes):
        chosen = points[[label == name for label in labels]]
        paper.axes.scatter(
            chosen[:, 0], chosen[:, 1], color=color(index), label=str(index), edgecolors="white"
        )
    paper.legend(classes)


def _rings(paper: "Sheet", model: Any) -> None:
    vectors = getattr(model, "support_vectors_", getattr(model, "support_vectors", None))
    if vectors is None:
        return
    array = to_array(vectors)
    paper.axes.scatter(array[:, 0], array[:, 1], s=120, facecolors="none", edgecolors="black")
