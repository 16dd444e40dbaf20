"""Asks a model once."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port

from ..base import TorchNode, shape_of
from ..training.devices import chosen_device, evaluation_copy, moved, wired_model


class Inference(TorchNode):
    type = "Inference"
    category = "IO"
    description = (
        "The model's answer in evaluation mode, without gradients. The model keeps its mode and device."
    )
    inputs = (
        Port(name="model", type=DataType.MODEL, description="A model of one input and one output"),
        Port(name="input", type=DataType.TENSOR, description="A batch"),
    )
    outputs = (
        Port(name="output", type=DataType.TENSOR, description="The answer"),
        Port(name="model", type=DataType.MODEL, description="The same model"),
    )
    params = (
        Param(
            name="device",
            kind=ParamKind.SELECT,
            default="auto",
            options=("auto", "cpu", "cuda", "mps"),
            description="auto follows the run",
        ),
    )
    cacheable = False

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        model, given = wired_model(inputs, self.type), self.tensor(inputs, "input", context)
        self._check(model)
        device = chosen_device(params["device"], context)
        with torch.no_grad(), self.fitting(input=given):
            output = evaluation_copy(model, device)(moved(given, device))
        if not isinstance(output, Tensor):
            raise self.unfit(f"model needs to answer one tensor; it answered {shape_of(output)}")
        context.log(f"{shape_of(given)} -> {shape_of(output)}")
        return {"output": output, "model": model}

    def _check(self, model: nn.Module) -> None:
        for side in ("input", "output"):
            names = getattr(model, f"{side}_names", ())
            if len(names) > 1:
                raise self.unfit(
                    f"model has the {side}s {', '.join(names)}; Inference can ask one {side} only, so draw a model"
                    f" with one {side}"
                )
