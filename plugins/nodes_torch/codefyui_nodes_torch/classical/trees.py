"""Decision trees, one or many."""

from collections.abc import Mapping
from typing import Any

from sklearn import ensemble, tree
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port

from .fitting import CLASSES, PREDICTIONS, PROBABILITIES, ClassifierNode, probabilities, tensor


def _depth(value: Any) -> int | None:
    return int(value) if int(value) > 0 else None


class DecisionTreeClassifier(ClassifierNode):
    type = "DecisionTreeClassifier"
    category = "Classical"
    description = "A tree of yes-or-no questions about single features (CART)."
    outputs = (
        PREDICTIONS,
        Port(
            name="feature_importances",
            type=DataType.TENSOR,
            description="(features), float32, adding up to 1",
        ),
        Port(name="tree_text", type=DataType.STRING, description="The tree in words"),
        CLASSES,
    )
    params = (
        Param(
            name="max_depth",
            kind=ParamKind.INT,
            default=5,
            minimum=0,
            description="Questions in a row; 0 no limit",
        ),
        Param(
            name="criterion",
            kind=ParamKind.SELECT,
            default="gini",
            options=("gini", "entropy", "log_loss"),
            description="How a split is judged",
        ),
        Param(
            name="random_state", kind=ParamKind.INT, default=42, description="Decides between equal splits"
        ),
    )

    @override
    def estimator(self, params: Mapping[str, Any], rows: int, context: NodeContext) -> Any:
        return tree.DecisionTreeClassifier(
            max_depth=_depth(params["max_depth"]),
            criterion=params["criterion"],
            random_state=int(params["random_state"]),
        )

    @override
    def more(self, fitted: Any, query: Any, context: NodeContext) -> Mapping[str, Any]:
        return {
            "feature_importances": tensor(fitted.feature_importances_, context),
            "tree_text": tree.export_text(fitted),
        }


class RandomForestClassifier(ClassifierNode):
    type = "RandomForestClassifier"
    category = "Classical"
    description = "Many trees on random parts of the data; their mean decides."
    outputs = (PREDICTIONS, PROBABILITIES, CLASSES)
    params = (
        Param(name="n_estimators", kind=ParamKind.INT, default=100, minimum=1, description="Trees"),
        Param(
            name="max_depth",
            kind=ParamKind.INT,
            default=0,
            minimum=0,
            description="Questions in a row; 0 no limit",
        ),
        Param(name="seed", kind=ParamKind.INT, default=0, description="Of the draws"),
    )

    @override
    def estimator(self, params: Mapping[str, Any], rows: int, context: NodeContext) -> Any:
        return ensemble.RandomForestClassifier(
            n_estimators=int(params["n_estimators"]),
            max_depth=_depth(params["max_depth"]),
            random_state=int(params["seed"]),
        )

    @override
    def more(self, fitted: Any, query: Any, context: NodeContext) -> Mapping[str, Any]:
        return probabilities(fitted, query, context)
