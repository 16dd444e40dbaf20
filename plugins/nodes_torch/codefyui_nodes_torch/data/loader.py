"""Batches out of a data set."""

from collections.abc import Mapping
from typing import Any

import torch
from typing_extensions import override

from codefyui_core.plugin import DataType, Node, NodeContext, Param, ParamKind, Port

from ..base import UnfitError
from .workers import WatchedLoader


class DataLoader(Node):
    type = "DataLoader"
    category = "Data"
    description = (
        "Batches of a data set; the last one may be smaller. A seeded run shuffles the same way each time."
    )
    inputs = (Port(name="dataset", type=DataType.DATASET, description="Items to batch"),)
    outputs = (Port(name="dataloader", type=DataType.DATALOADER, description="Batches"),)
    params = (
        Param(name="batch_size", kind=ParamKind.INT, default=32, minimum=1, description="Items in a batch"),
        Param(name="shuffle", kind=ParamKind.BOOL, default=True, description="A new order in every epoch"),
        Param(
            name="num_workers",
            kind=ParamKind.INT,
            default=0,
            minimum=0,
            description="Processes that load ahead; 0 loads in the run itself",
        ),
    )
    cacheable = False

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        dataset = inputs["dataset"]
        if not len(dataset):
            raise UnfitError("DataLoader: the data set is empty")
        loader = WatchedLoader(
            dataset,
            batch_size=int(params["batch_size"]),
            shuffle=bool(params["shuffle"]),
            num_workers=int(params["num_workers"]),
            generator=_generator(context),
        )
        return {"dataloader": loader}


def _generator(context: NodeContext) -> torch.Generator | None:
    """On the CPU whatever the run's device: samplers draw there."""
    seed = context.derive_seed("order")
    return None if seed is None else torch.Generator().manual_seed(seed)
