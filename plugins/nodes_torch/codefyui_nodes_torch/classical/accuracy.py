"""How many predictions are right."""

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Port

from ..base import TorchNode


class Accuracy(TorchNode):
    type = "Accuracy"
    category = "Classical"
    description = (
        "Share of predictions that equal their labels. Numbers are compared as numbers: 1.0 equals 1."
    )
    inputs = (
        Port(name="predictions", type=DataType.LIST, description="Answers"),
        Port(name="labels", type=DataType.LIST, description="What is right"),
    )
    outputs = (
        Port(name="accuracy", type=DataType.SCALAR, description="correct / total; 0 for nothing"),
        Port(name="correct", type=DataType.SCALAR, description="Right answers"),
        Port(name="total", type=DataType.SCALAR, description="Answers"),
    )

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        predictions, labels = _listed(inputs["predictions"]), _listed(inputs["labels"])
        if len(predictions) != len(labels):
            raise self.unfit(
                f"there are {len(predictions)} predictions and {len(labels)} labels; they must be as many"
            )
        correct = sum(_same(one, other) for one, other in zip(predictions, labels, strict=True))
        total = len(labels)
        return {"accuracy": correct / total if total else 0.0, "correct": correct, "total": total}


def _listed(values: Any) -> list[Any]:
    return list(values.flatten().tolist()) if hasattr(values, "flatten") else list(values)


def _same(one: Any, other: Any) -> bool:
    if str(one) == str(other):
        return True
    first, second = _number(one), _number(other)
    return first is not None and first == second


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
