"""Support vector machines."""

from collections.abc import Mapping
from typing import Any

from sklearn.svm import SVC
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port

from .fitting import CLASSES, PREDICTIONS, ClassifierNode, tensor


class SVMClassifier(ClassifierNode):
    type = "SVMClassifier"
    category = "Classical"
    description = "The widest margin between classes, in the space of a kernel."
    outputs = (
        PREDICTIONS,
        Port(
            name="support_vectors",
            type=DataType.TENSOR,
            description="(vectors, features): rows at the margin",
        ),
        CLASSES,
    )
    params = (
        Param(name="C", kind=ParamKind.FLOAT, default=1.0, description="Price of a row on the wrong side"),
        Param(
            name="kernel",
            kind=ParamKind.SELECT,
            default="rbf",
            options=("linear", "rbf", "poly", "sigmoid"),
            description="Shape of the border",
        ),
        Param(
            name="gamma",
            kind=ParamKind.STRING,
            default="scale",
            description="Reach of a row: scale, auto or a number",
        ),
    )

    @override
    def estimator(self, params: Mapping[str, Any], rows: int, context: NodeContext) -> Any:
        return SVC(C=float(params["C"]), kernel=params["kernel"], gamma=self._gamma(params["gamma"]))

    def _gamma(self, text: str) -> str | float:
        if text.strip() in {"scale", "auto"}:
            return text.strip()
        try:
            return float(text)
        except ValueError as problem:
            raise self.unfit(f"gamma is scale, auto or a number; it is {text!r}") from problem

    @override
    def more(self, fitted: Any, query: Any, context: NodeContext) -> Mapping[str, Any]:
        return {"support_vectors": tensor(fitted.support_vectors_, context)}
