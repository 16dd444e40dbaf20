"""What the estimators share: tables and labels as scikit-learn takes them, and its complaints as ours."""

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Port

from ..base import TorchNode

CLASSIFIER_INPUTS = (
    Port(name="x_train", type=DataType.TENSOR, description="(rows, features) to learn from"),
    Port(name="y_train", type=DataType.LIST, description="Their labels"),
    Port(name="x_query", type=DataType.TENSOR, description="(rows, features) to answer for"),
)
PREDICTIONS = Port(name="predictions", type=DataType.LIST, description="A text for each query row")
PROBABILITIES = Port(
    name="probabilities", type=DataType.TENSOR, description="(query rows, classes), float32, as classes"
)
CLASSES = Port(name="classes", type=DataType.LIST, description="The labels, sorted as texts")

# Recording warnings replaces the process's way of showing them; two nodes at once would leave it broken.
_RECORDING = Lock()


def table(tensor: Tensor) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A tensor from any device, with or without gradients, as a float32 array."""
    array: np.ndarray[Any, np.dtype[np.float32]] = tensor.detach().cpu().float().numpy()
    return array


def tensor(array: Any, context: NodeContext) -> Tensor:
    """float32 on the run's device."""
    return torch.tensor(np.asarray(array), dtype=torch.float32, device=context.device)


def texts(labels: Any) -> list[str]:
    """Labels of a list, array or tensor as texts, which is how all classifiers take and give them."""
    return [str(label) for label in (labels.tolist() if hasattr(labels, "tolist") else labels)]


class EstimatorNode(TorchNode):
    """A node that fits one estimator of scikit-learn."""

    def table(self, inputs: Mapping[str, Any], port: str, context: NodeContext) -> Any:
        """The (rows, features) array at a port.

        Raises: UnfitError.
        """
        value = self.tensor(inputs, port, context)
        self.check_rank(port, value, "rows, features")
        return table(value)

    @contextmanager
    def telling(self, context: NodeContext) -> Iterator[None]:
        """scikit-learn's warnings into the run's log, its errors as ones that name the node."""
        with _RECORDING, warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                yield
            except ValueError as problem:
                raise self.unfit(str(problem).splitlines()[0]) from problem
        for message in seen:
            context.log(f"{self.type}: {str(message.message).splitlines()[0]}")


class ClassifierNode(EstimatorNode):
    """Learns labels from ``x_train`` and ``y_train`` and predicts those of ``x_query``."""

    inputs = CLASSIFIER_INPUTS

    @abstractmethod
    def estimator(self, params: Mapping[str, Any], rows: int, context: NodeContext) -> Any:
        """The estimator, not fitted; ``rows`` is how many there are to learn from."""

    def more(self, fitted: Any, query: Any, context: NodeContext) -> Mapping[str, Any]:
        """Outputs besides predictions and classes."""
        return {}

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        train, query = self.table(inputs, "x_train", context), self.table(inputs, "x_query", context)
        labels = texts(inputs["y_train"])
        if len(labels) != len(train):
            raise self.unfit(
                f"x_train has {len(train)} rows and y_train {len(labels)}; each row needs one label"
            )
        with self.telling(context):
            fitted = self.estimator(params, len(train), context).fit(train, np.array(labels))
            predicted = fitted.predict(query)
            more = self.more(fitted, query, context)
        return {"predictions": texts(predicted), "classes": texts(fitted.classes_), **more}


def probabilities(fitted: Any, query: Any, context: NodeContext) -> dict[str, Any]:
    """The output of that name."""
    return {"probabilities": tensor(fitted.predict_proba(query), context)}
