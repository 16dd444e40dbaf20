"""Which device a node computes on, and moving things there."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from codefyui_core.plugin import NodeContext

from ..base import UnfitError, shape_of


def wired_model(inputs: Mapping[str, Any], node: str) -> nn.Module:
    """The module at port ``model``.

    Raises: UnfitError for anything else that a MODEL wire may carry.
    """
    model = inputs.get("model")
    if not isinstance(model, nn.Module):
        raise UnfitError(f"{node}: model needs a torch module; it got {shape_of(model)}")
    return model


def chosen_device(value: str, context: NodeContext) -> torch.device:
    """The device of a ``device`` param: ``auto`` follows the run; one that isn't there becomes the CPU, and
    the run's log says so.
    """
    wanted = context.device if value == "auto" else value
    device = torch.device(wanted)
    if _present(device):
        return device
    context.log(f"{wanted} isn't available on this machine; computing on the CPU")
    return torch.device("cpu")


def _present(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()
    if device.type == "mps":
        return torch.backends.mps.is_available()
    return True


def moved(value: Any, device: torch.device) -> Any:
    """Tensors of a batch, however nested in tuples, lists and dicts, on ``device``."""
    if isinstance(value, torch.Tensor):
        return _narrowed(value, device).to(device, non_blocking=True)
    if isinstance(value, Mapping):
        return {key: moved(item, device) for key, item in value.items()}
    if isinstance(value, list | tuple):
        parts = [moved(item, device) for item in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _narrowed(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    # MPS has no float64.
    return tensor.float() if device.type == "mps" and tensor.dtype == torch.float64 else tensor


def move_model(model: nn.Module, device: torch.device) -> None:
    """Move a module in place; its parameters stay the same objects, so optimizers over them stay valid."""
    if device.type == "mps":
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.data = _narrowed(tensor.data, device)
    model.to(device)


def move_state(optimizer: torch.optim.Optimizer) -> None:
    """Put an optimizer's state beside its parameters, after these moved.

    Step counters stay where they are: torch keeps them on the CPU unless the optimizer is fused or capturable.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            for name, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor) and name != "step":
                    optimizer.state[parameter][name] = value.to(parameter.device)


def evaluation_copy(model: nn.Module, device: torch.device) -> nn.Module:
    """A copy in evaluation mode on ``device``.

    The model itself keeps its mode and place, also for nodes that use it in another thread meanwhile.
    """
    copied = deepcopy(model)
    move_model(copied, device)
    return copied.eval()
