"""Reads weights from the models folder into a model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from typing_extensions import override

from codefyui_core.plugin import CodefyError, DataType, Family, NodeContext, Param, ParamKind, Port

from ..base import TorchNode, UnfitError
from ..training.checkpoint import check_fit, read_data
from ..training.devices import chosen_device, move_model
from ..training.layer_graph import LayerGraph
from .model_saver import FULL_MODEL


class ModelLoader(TorchNode):
    type = "ModelLoader"
    category = "IO"
    description = (
        "Fills the wired model with saved weights, in place; full_model builds a SequentialModel that was saved"
        " so. Files are read as data only and run no code."
    )
    inputs = (
        Port(
            name="model",
            type=DataType.MODEL,
            optional=True,
            description="The model to fill; not needed for full_model",
        ),
    )
    outputs = (Port(name="model", type=DataType.MODEL, description="The filled model"),)
    params = (
        Param(
            name="path",
            kind=ParamKind.MODEL_FILE,
            default="",
            family=Family.MODELS,
            description="A file of the models folder",
        ),
        Param(
            name="load_mode",
            kind=ParamKind.SELECT,
            default="state_dict",
            options=("state_dict", "full_model"),
            description="Weights alone, or a model with its drawing",
        ),
        Param(
            name="device",
            kind=ParamKind.SELECT,
            default="auto",
            options=("auto", "cpu", "cuda", "mps"),
            description="auto follows the run",
        ),
        Param(
            name="strict",
            kind=ParamKind.BOOL,
            default=True,
            description="Off lets names be missing or left over; shapes must fit all the same",
        ),
    )
    cacheable = False

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        if not params["path"]:
            raise self.unfit("path is empty; choose a file of the models folder")
        path = context.input_file(Family.MODELS, params["path"])
        if params["load_mode"] == "full_model":
            model: nn.Module = _full_model(path)
        else:
            model = self._filled(inputs.get("model"), path, strict=params["strict"])
        move_model(model, chosen_device(params["device"], context))
        context.log(f"loaded {params['path']}")
        return {"model": model}

    def _filled(self, model: Any, path: Path, *, strict: bool) -> nn.Module:
        if not isinstance(model, nn.Module):
            raise self.unfit("load_mode state_dict needs a model wired, to fill with the weights")
        weights = read_weights(path)
        check_fit(model, weights, strict=strict)
        model.load_state_dict(weights, strict=strict)
        return model


def read_weights(path: Path) -> Mapping[str, Tensor]:
    """The state dict of a safetensors file, or of a file of torch: weights alone, a full model's, or a
    checkpoint's.

    Raises: CodefyError ``files.unreadable``.
    """
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except (SafetensorError, OSError) as problem:
            raise CodefyError(
                f"{path.name} can't be read as safetensors: {problem}", code="files.unreadable"
            ) from problem
    content = read_data(path)
    for key in ("model_state_dict", "state_dict"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(name, str) for name in content):
        raise CodefyError(f"{path.name} holds no weights by name", code="files.unreadable")
    return content


def _full_model(path: Path) -> LayerGraph:
    if path.suffix == ".safetensors":
        raise UnfitError(
            "ModelLoader: safetensors holds weights alone; wire the model in and choose load_mode state_dict."
        )
    content = read_data(path)
    if not isinstance(content, Mapping) or FULL_MODEL not in content:
        raise UnfitError(
            f"ModelLoader: {path.name} holds no drawing of a model; wire the model in and choose load_mode"
            " state_dict."
        )
    model = LayerGraph(content[FULL_MODEL])
    check_fit(model, content["state_dict"])
    model.load_state_dict(content["state_dict"])
    return model
