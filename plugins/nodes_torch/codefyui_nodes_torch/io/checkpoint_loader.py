"""Reads a checkpoint back into a model and its optimizer."""

from collections.abc import Mapping
from typing import Any

import torch
from typing_extensions import override

from codefyui_core.plugin import DataType, Family, NodeContext, Param, ParamKind, Port

from ..base import TorchNode
from ..training.checkpoint import read_checkpoint, restore
from ..training.devices import chosen_device, move_model, wired_model


class CheckpointLoader(TorchNode):
    type = "CheckpointLoader"
    category = "IO"
    description = (
        "Fills the wired model and optimizer, in place. To go on with a whole training, schedule and all, use"
        " TrainingLoop's resume_from."
    )
    inputs = (
        Port(name="model", type=DataType.MODEL, description="The model to fill"),
        Port(
            name="optimizer", type=DataType.OPTIMIZER, description="Its optimizer, of the checkpoint's type"
        ),
    )
    outputs = (
        Port(name="model", type=DataType.MODEL, description="The same model, filled"),
        Port(name="optimizer", type=DataType.OPTIMIZER, description="The same optimizer, filled"),
        Port(name="epoch", type=DataType.SCALAR, description="Epochs finished"),
        Port(name="losses", type=DataType.TENSOR, description="Losses so far, float32"),
    )
    params = (
        Param(
            name="path",
            kind=ParamKind.MODEL_FILE,
            default="",
            family=Family.MODELS,
            description="A checkpoint of the models folder",
        ),
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
        if not params["path"]:
            raise self.unfit("path is empty; choose a checkpoint of the models folder")
        model, optimizer = wired_model(inputs, self.type), inputs["optimizer"]
        content = read_checkpoint(context.input_file(Family.MODELS, params["path"]))
        move_model(model, chosen_device(params["device"], context))
        restore(content, model, optimizer)
        losses = content.get("losses")
        return {
            "model": model,
            "optimizer": optimizer,
            "epoch": int(content.get("epoch", 0)),
            "losses": torch.as_tensor([] if losses is None else losses, dtype=torch.float32),
        }
