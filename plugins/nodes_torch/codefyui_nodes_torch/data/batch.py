"""One batch of a data set as tensors."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port

from ..base import TorchNode, UnfitError


class DatasetBatch(TorchNode):
    type = "DatasetBatch"
    category = "Data"
    description = "Items of a data set in its own order, from the start again when it is over."
    inputs = (Port(name="dataset", type=DataType.DATASET, description="Items (tensor, label)"),)
    outputs = (
        Port(name="images", type=DataType.TENSOR, description="(batch, …)"),
        Port(name="labels", type=DataType.TENSOR, description="(batch, …), int64 or float32"),
    )
    params = (
        Param(name="batch_size", kind=ParamKind.INT, default=1, minimum=1, description="Items"),
        Param(name="start_index", kind=ParamKind.INT, default=0, minimum=0, description="The first, from 0"),
    )

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        dataset, start = inputs["dataset"], int(params["start_index"])
        if not len(dataset):
            raise self.unfit("dataset is empty")
        items = [dataset[(start + place) % len(dataset)] for place in range(int(params["batch_size"]))]
        if any(not isinstance(item, list | tuple) or len(item) != 2 for item in items):
            raise self.unfit("dataset needs items of two parts, (tensor, label)")
        images = _stacked([torch.as_tensor(image) for image, _ in items])
        labels = _labels([label for _, label in items])
        return {"images": images.to(context.device), "labels": labels.to(context.device)}


def _stacked(tensors: Sequence[Tensor]) -> Tensor:
    shapes = {tuple(tensor.shape) for tensor in tensors}
    if len(shapes) > 1:
        raise UnfitError(
            f"DatasetBatch: the items have different shapes, {' and '.join(map(str, sorted(shapes)))}; bring"
            " them to one size first, for example with Transform's resize"
        )
    return torch.stack(list(tensors))


def _labels(labels: Sequence[Any]) -> Tensor:
    """Masks and vectors as they are, fractions as float32, whole numbers as int64."""
    try:
        tensors = [torch.as_tensor(label) for label in labels]
    except (TypeError, ValueError, RuntimeError) as problem:
        raise UnfitError(f"DatasetBatch: labels need to be numbers: {problem}") from problem
    stacked = _stacked(tensors)
    if stacked.dim() > 1:
        return stacked
    return stacked.float() if stacked.is_floating_point() else stacked.long()
