"""Writes what a training needs to go on."""

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from codefyui_core.plugin import DataType, Family, FileRole, NodeContext, Param, ParamKind, Port

from ..base import TorchNode
from ..training.checkpoint import check_owner, contents, write_checkpoint
from ..training.devices import wired_model


class CheckpointSaver(TorchNode):
    type = "CheckpointSaver"
    category = "IO"
    description = "Writes weights, optimizer state and losses below the models folder."
    inputs = (
        Port(name="model", type=DataType.MODEL, description="The model"),
        Port(name="optimizer", type=DataType.OPTIMIZER, description="Its optimizer"),
        Port(name="losses", type=DataType.TENSOR, optional=True, description="Losses so far"),
    )
    outputs = (
        Port(name="path", type=DataType.STRING, description="Where the file lies"),
        Port(name="model", type=DataType.MODEL, description="The same model"),
    )
    params = (
        Param(
            name="path",
            kind=ParamKind.STRING,
            default="checkpoint.pt",
            path=FileRole.WRITES,
            family=Family.MODELS,
            description="Name below the models folder; overwritten when it is there",
        ),
        Param(
            name="epoch",
            kind=ParamKind.INT,
            default=0,
            description="Epochs finished; 0 counts the wired losses",
        ),
    )
    cacheable = False

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        name = params["path"]
        if not name.strip():
            raise self.unfit("path is empty; give the file a name, such as checkpoint.pt")
        model, optimizer = wired_model(inputs, self.type), inputs["optimizer"]
        check_owner(model, optimizer)
        losses = inputs.get("losses")
        numbers = [] if losses is None else [float(loss) for loss in losses]
        epoch = int(params["epoch"]) or len(numbers)
        path = context.output_file(Family.MODELS, name)
        write_checkpoint(path, contents(model=model, optimizer=optimizer, epoch=epoch, losses=numbers))
        if context.records:
            context.artifact("output", path, {"epoch": epoch})
        context.log(f"checkpoint models/{name}")
        return {"path": str(path), "model": model}
