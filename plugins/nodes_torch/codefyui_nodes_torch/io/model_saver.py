"""Writes a model's weights into the models folder."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from safetensors.torch import save as safetensors_bytes
from torch import Tensor, nn
from typing_extensions import override

from codefyui_core.plugin import DataType, Family, FileRole, Node, NodeContext, Param, ParamKind, Port

from ..base import UnfitError
from ..training.devices import wired_model
from ..training.layer_graph import LayerGraph
from .whole_file import write_whole

FULL_MODEL = "codefyui.sequential_model"
"""Key of a full model's file: its drawing. The weights lie beside it under ``state_dict``."""


class ModelSaver(Node):
    type = "ModelSaver"
    category = "IO"
    description = (
        "Writes the weights below the models folder. full_model keeps the drawing of a SequentialModel too, so"
        " that ModelLoader needs no model wired."
    )
    inputs = (Port(name="model", type=DataType.MODEL, description="The model to save"),)
    outputs = (
        Port(name="path", type=DataType.STRING, description="Where the file lies"),
        Port(name="model", type=DataType.MODEL, description="The same model"),
    )
    params = (
        Param(
            name="path",
            kind=ParamKind.STRING,
            default="model_weights.pt",
            path=FileRole.WRITES,
            family=Family.MODELS,
            description="Name below the models folder; overwritten when it is there",
        ),
        Param(
            name="save_mode",
            kind=ParamKind.SELECT,
            default="state_dict",
            options=("state_dict", "full_model"),
            description="Weights alone, or with the drawing",
        ),
        Param(
            name="format",
            kind=ParamKind.SELECT,
            default="pytorch",
            options=("pytorch", "safetensors"),
            description="safetensors holds weights alone and ends in .safetensors",
        ),
    )
    cacheable = False

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        model, mode, format_ = wired_model(inputs, self.type), params["save_mode"], params["format"]
        name = _name(params["path"], format_)
        path = context.output_file(Family.MODELS, name)
        if format_ == "safetensors":
            _save_safetensors(path, model, mode)
        else:
            content = model.state_dict() if mode == "state_dict" else _full(model)
            write_whole(path, lambda file: torch.save(content, file))
        if context.records:
            context.artifact("output", path, {"format": format_, "save_mode": mode})
        context.log(f"saved models/{name}")
        return {"path": str(path), "model": model}


def _name(value: str, format_: str) -> str:
    if not value.strip():
        raise UnfitError("ModelSaver: path is empty; give the file a name, such as model_weights.pt")
    return str(PurePosixPath(value).with_suffix(".safetensors")) if format_ == "safetensors" else value


def _full(model: nn.Module) -> dict[str, Any]:
    if not isinstance(model, LayerGraph):
        raise UnfitError(
            f"ModelSaver: full_model can keep the drawing of a SequentialModel only, and this is a"
            f" {type(model).__name__}; choose save_mode state_dict and build the model again where it is loaded."
        )
    return {FULL_MODEL: model.text, "state_dict": model.state_dict()}


def _save_safetensors(path: Path, model: nn.Module, mode: str) -> None:
    if mode != "state_dict":
        raise UnfitError("ModelSaver: safetensors holds weights alone; choose save_mode state_dict.")
    data = safetensors_bytes(_apart(model.state_dict()))
    write_whole(path, lambda file: file.write(data))


def _apart(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous copies that share no memory: the format has no tied weights, so each name has its own."""
    return {name: value.detach().cpu().clone().contiguous() for name, value in weights.items()}
