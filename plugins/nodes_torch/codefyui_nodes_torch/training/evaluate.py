"""Accuracy of a classifier on a data set."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from typing_extensions import override

from codefyui_core.plugin import DataType, Node, NodeContext, Param, ParamKind, Port

from ..base import UnfitError, shape_of
from .batches import as_batch
from .devices import chosen_device, evaluation_copy, wired_model
from .loss import Target
from .measures import Hits, hits_of


class EvaluateModel(Node):
    type = "EvaluateModel"
    category = "Training"
    description = (
        "Share of labels that the model's highest score on axis 1 hits. The model keeps its mode and device."
    )
    inputs = (
        Port(name="model", type=DataType.MODEL, description="A classifier"),
        Port(name="dataset", type=DataType.DATASET, description="Items with class numbers"),
    )
    outputs = (
        Port(name="accuracy", type=DataType.SCALAR, description="correct / total"),
        Port(name="correct", type=DataType.SCALAR, description="Labels hit"),
        Port(name="total", type=DataType.SCALAR, description="Labels in all; pixels for masks"),
    )
    params = (
        Param(
            name="batch_size",
            kind=ParamKind.INT,
            default=256,
            minimum=1,
            description="Items computed at once",
        ),
        Param(
            name="device",
            kind=ParamKind.SELECT,
            default="cpu",
            options=("cpu", "cuda"),
            description="Where to compute",
        ),
    )
    cacheable = False

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        hits = Hits()
        device = chosen_device(params["device"], context)
        model = evaluation_copy(wired_model(inputs, self.type), device)
        loader: DataLoader[Any] = DataLoader(inputs["dataset"], batch_size=int(params["batch_size"]))
        interrupted: dict[str, Any] = {}
        with torch.inference_mode():
            for item in loader:
                if context.should_stop():
                    interrupted = {"__interrupted__": True}
                    break
                batch = as_batch(item, model).on(device)
                hits.add(_hits(model(*batch.args, **batch.kwargs), batch.target))
        accuracy = hits.share or 0.0
        if not interrupted:
            context.metric("eval_accuracy", accuracy)
        return {"accuracy": accuracy, "correct": hits.correct, "total": hits.total, **interrupted}


def _hits(output: Any, target: Any) -> tuple[int, int] | None:
    if not isinstance(output, Tensor) or output.ndim < 2 or not isinstance(target, Tensor):
        raise UnfitError(
            f"EvaluateModel needs scores (B, classes, …) and class numbers; it got {shape_of(output)} and"
            f" {shape_of(target)}."
        )
    if target.is_floating_point() and not torch.equal(target, target.round()):
        raise UnfitError(
            "EvaluateModel counts hits of class numbers; these labels are fractions. For numbers, compare"
            " losses: wire the data as val_dataloader of TrainingLoop."
        )
    return hits_of(output, target.long(), Target.CLASSES)
