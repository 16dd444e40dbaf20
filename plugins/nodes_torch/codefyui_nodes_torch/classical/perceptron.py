"""Small neural networks of scikit-learn."""

from collections.abc import Mapping
from typing import Any

from sklearn import neural_network
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port

from ..integers import integers
from .fitting import CLASSES, PREDICTIONS, PROBABILITIES, ClassifierNode, probabilities


class MLPClassifier(ClassifierNode):
    type = "MLPClassifier"
    category = "Classical"
    description = "A network of fully connected layers, trained with Adam."
    outputs = (
        PREDICTIONS,
        PROBABILITIES,
        CLASSES,
        Port(name="train_loss", type=DataType.SCALAR, description="Of the last pass"),
    )
    params = (
        Param(
            name="hidden_sizes",
            kind=ParamKind.STRING,
            default="16,16",
            description="Neurons of each hidden layer, separated by commas",
        ),
        Param(
            name="activation",
            kind=ParamKind.SELECT,
            default="relu",
            options=("relu", "tanh", "logistic", "identity"),
            description="identity leaves the network linear",
        ),
        Param(
            name="max_iter", kind=ParamKind.INT, default=500, minimum=1, description="Passes over the data"
        ),
        Param(
            name="learning_rate_init",
            kind=ParamKind.FLOAT,
            default=0.01,
            minimum=0.0,
            description="Adam's rate",
        ),
        Param(name="seed", kind=ParamKind.INT, default=42, description="Of the weights and the order"),
    )

    @override
    def estimator(self, params: Mapping[str, Any], rows: int, context: NodeContext) -> Any:
        sizes = integers(params["hidden_sizes"], "MLPClassifier: hidden_sizes")
        if min(sizes) < 1:
            raise self.unfit(f"hidden_sizes must be 1 or more each; it is {params['hidden_sizes']!r}")
        return neural_network.MLPClassifier(
            hidden_layer_sizes=sizes,
            activation=params["activation"],
            max_iter=int(params["max_iter"]),
            learning_rate_init=float(params["learning_rate_init"]),
            random_state=int(params["seed"]),
        )

    @override
    def more(self, fitted: Any, query: Any, context: NodeContext) -> Mapping[str, Any]:
        return {**probabilities(fitted, query, context), "train_loss": float(fitted.loss_)}
