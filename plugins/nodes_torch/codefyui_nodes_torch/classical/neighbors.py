"""The k nearest neighbors vote."""

from collections.abc import Mapping
from typing import Any

from sklearn.neighbors import KNeighborsClassifier
from typing_extensions import override

from codefyui_core.plugin import NodeContext, Param, ParamKind

from .fitting import CLASSES, PREDICTIONS, PROBABILITIES, ClassifierNode, probabilities


class KNN(ClassifierNode):
    type = "KNN"
    category = "Classical"
    description = "The label that most of the nearest rows have."
    outputs = (PREDICTIONS, PROBABILITIES, CLASSES)
    params = (
        Param(
            name="n_neighbors",
            kind=ParamKind.INT,
            default=5,
            minimum=1,
            description="Rows that vote, at most all",
        ),
        Param(
            name="weights",
            kind=ParamKind.SELECT,
            default="uniform",
            options=("uniform", "distance"),
            description="distance gives nearer rows more weight",
        ),
        Param(
            name="metric",
            kind=ParamKind.SELECT,
            default="minkowski",
            options=("minkowski", "euclidean", "manhattan", "chebyshev", "cosine"),
            description="Distance between rows",
        ),
    )

    @override
    def estimator(self, params: Mapping[str, Any], rows: int, context: NodeContext) -> Any:
        return KNeighborsClassifier(
            n_neighbors=min(int(params["n_neighbors"]), max(rows, 1)),
            weights=params["weights"],
            metric=params["metric"],
        )

    @override
    def more(self, fitted: Any, query: Any, context: NodeContext) -> Mapping[str, Any]:
        return probabilities(fitted, query, context)
