"""Linear models: least squares, and classes by a logistic function."""

import math
from collections.abc import Mapping
from typing import Any

from sklearn import linear_model
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port

from .fitting import (
    CLASSES,
    PREDICTIONS,
    PROBABILITIES,
    ClassifierNode,
    EstimatorNode,
    probabilities,
    table,
    tensor,
)


class LinearRegression(EstimatorNode):
    type = "LinearRegression"
    category = "Classical"
    description = "Least squares."
    inputs = (
        Port(name="x_train", type=DataType.TENSOR, description="(rows, features) to learn from"),
        Port(name="y_train", type=DataType.TENSOR, description="(rows) or (rows, targets)"),
        Port(name="x_query", type=DataType.TENSOR, description="(rows, features) to answer for"),
    )
    outputs = (
        Port(name="predictions", type=DataType.TENSOR, description="(query rows) or (query rows, targets)"),
        Port(name="coef", type=DataType.TENSOR, description="(features) or (targets, features)"),
        Port(
            name="intercept",
            type=DataType.SCALAR,
            description="A number; with several targets, a tensor of one for each",
        ),
    )
    params = (
        Param(
            name="fit_intercept",
            kind=ParamKind.BOOL,
            default=True,
            description="Off forces the line through 0",
        ),
    )

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        train, query = self.table(inputs, "x_train", context), self.table(inputs, "x_query", context)
        goal = table(self.tensor(inputs, "y_train", context))
        with self.telling(context):
            fitted = linear_model.LinearRegression(fit_intercept=bool(params["fit_intercept"])).fit(
                train, goal
            )
            predicted = fitted.predict(query)
        several = goal.ndim > 1 and params["fit_intercept"]
        return {
            "predictions": tensor(predicted, context),
            "coef": tensor(fitted.coef_, context),
            "intercept": tensor(fitted.intercept_, context) if several else float(fitted.intercept_),
        }


class LogisticRegression(ClassifierNode):
    type = "LogisticRegression"
    category = "Classical"
    description = "Class probabilities from a linear score of the features."
    outputs = (
        PREDICTIONS,
        PROBABILITIES,
        CLASSES,
        Port(
            name="coef",
            type=DataType.TENSOR,
            description="(classes, features); (1, features) for two classes",
        ),
    )
    params = (
        Param(
            name="C",
            kind=ParamKind.FLOAT,
            default=1.0,
            description="Freedom: the smaller, the smaller the weights",
        ),
        Param(name="max_iter", kind=ParamKind.INT, default=200, minimum=1, description="Steps of the solver"),
        Param(
            name="penalty",
            kind=ParamKind.SELECT,
            default="l2",
            options=("l2", "l1", "none"),
            description="l1 makes weights exactly 0, none lets them grow",
        ),
    )

    @override
    def estimator(self, params: Mapping[str, Any], rows: int, context: NodeContext) -> Any:
        strength, penalty = float(params["C"]), params["penalty"]
        if strength <= 0:
            raise self.unfit(f"C must be above 0; it is {strength:g}")
        return linear_model.LogisticRegression(
            C=math.inf if penalty == "none" else strength,
            l1_ratio=1.0 if penalty == "l1" else 0.0,
            solver="saga" if penalty == "l1" else "lbfgs",
            max_iter=int(params["max_iter"]),
            # saga draws rows at random; without a seed of the run it does so the same way every time.
            random_state=context.derive_seed("saga") or 0,
        )

    @override
    def more(self, fitted: Any, query: Any, context: NodeContext) -> Mapping[str, Any]:
        return {**probabilities(fitted, query, context), "coef": tensor(fitted.coef_, context)}
