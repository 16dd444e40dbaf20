"""Builds an optimizer over a model's parameters."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from typing_extensions import override

from codefyui_core.plugin import DataType, Node, NodeContext, Param, ParamKind, Port

from ..base import UnfitError
from .devices import wired_model

CLASSES: Mapping[str, type[torch.optim.Optimizer]] = MappingProxyType(
    {
        "Adam": torch.optim.Adam,
        "SGD": torch.optim.SGD,
        "AdamW": torch.optim.AdamW,
        "RMSprop": torch.optim.RMSprop,
        "Adagrad": torch.optim.Adagrad,
        "RAdam": torch.optim.RAdam,
        "NAdam": torch.optim.NAdam,
        "Rprop": torch.optim.Rprop,
        "ASGD": torch.optim.ASGD,
    }
)


class Optimizer(Node):
    type = "Optimizer"
    category = "Training"
    description = "An optimizer over all parameters of the model; other settings are torch's defaults."
    inputs = (Port(name="model", type=DataType.MODEL, description="The model to train"),)
    outputs = (Port(name="optimizer", type=DataType.OPTIMIZER, description="The optimizer"),)
    params = (
        Param(
            name="type",
            kind=ParamKind.SELECT,
            default="Adam",
            options=tuple(CLASSES),
            description="The method",
        ),
        Param(name="lr", kind=ParamKind.FLOAT, default=0.001, minimum=0.0, description="Learning rate"),
        Param(
            name="weight_decay",
            kind=ParamKind.FLOAT,
            default=0.0,
            minimum=0.0,
            description="Pull of the weights towards 0",
        ),
    )
    cacheable = False

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        parameters = list(wired_model(inputs, self.type).parameters())
        if not parameters:
            raise UnfitError("This model has no parameters to train; wire one that has.")
        settings: dict[str, Any] = {
            "lr": float(params["lr"]),
            **_decay(params["type"], float(params["weight_decay"])),
        }
        return {"optimizer": CLASSES[params["type"]](parameters, **settings)}


def _decay(kind: str, weight_decay: float) -> dict[str, float]:
    if kind != "Rprop":
        return {"weight_decay": weight_decay}
    if weight_decay:
        raise UnfitError("Rprop has no weight decay: set weight_decay to 0 or choose another type.")
    return {}
