"""MovingAverage: the mean of each number and those before it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from codefyui_core.plugin import CodefyError, DataType, Node, NodeContext, Param, ParamKind, Port


class MovingAverage(Node):
    type = "MovingAverage"
    category = "Example"
    description = "Replaces each number of a list by the mean of itself and the numbers before it."
    inputs = (Port(name="series", type=DataType.LIST, description="Numbers"),)
    outputs = (
        Port(name="smooth", type=DataType.LIST, description="As many numbers, smoothed"),
        Port(name="last", type=DataType.SCALAR, description="The newest of them"),
    )
    params = (
        Param(
            name="window",
            kind=ParamKind.INT,
            default=3,
            minimum=1,
            maximum=10_000,
            description="How many numbers a mean is taken of; fewer at the beginning",
        ),
    )

    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        series = np.asarray(inputs["series"], dtype=np.float64)
        if series.ndim != 1 or series.size == 0:
            raise CodefyError(f"MovingAverage: series has shape {series.shape}; wire a list of numbers")
        sums = np.cumsum(np.concatenate(([0.0], series)))
        ends = np.arange(1, series.size + 1)
        starts = np.maximum(ends - params["window"], 0)
        smooth = (sums[ends] - sums[starts]) / (ends - starts)
        context.metric("last", float(smooth[-1]))
        return {"smooth": smooth.tolist(), "last": float(smooth[-1])}
