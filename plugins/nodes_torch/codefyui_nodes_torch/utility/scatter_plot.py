"""Points in the plane."""

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Port

from .labels import classes_of
from .plane import SIDE_PX, TITLE, PlaneNode, scatter


class ScatterPlot2D(PlaneNode):
    type = "ScatterPlot2D"
    description = "Points in the plane, colored by class when labels are wired."
    inputs = (
        Port(name="points", type=DataType.TENSOR, description="(N, 2)"),
        Port(name="labels", type=DataType.LIST, optional=True, description="One a point"),
    )
    params = (TITLE,)

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
                scatter(paper, points, labels, classes_of(labels))
            else:
                paper.axes.scatter(points[:, 0], points[:, 1])
            paper.axes.set_aspect("equal", adjustable="datalim")
            paper.title(params["title"])
            return {"image": paper.png()}
