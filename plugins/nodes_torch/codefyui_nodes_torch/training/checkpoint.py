"""Checkpoints: what a training needs to go on, and files that hold nothing but data.

A file is a dict that ``torch.load(weights_only=True)`` reads: epoch (epochs finished), model_state_dict,
optimizer_state_dict, optimizer_class, initial_lrs, losses, scheduler_state_dict, scheduler_class,
scaler_state_dict; TrainingLoop adds val_losses, lrs, step, early_stopping and, in the middle of an epoch,
partial. Those after losses may be missing.
"""

import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from codefyui_core.plugin import CodefyError

from ..base import UnfitError
from ..io.whole_file import write_whole
from .devices import move_state

_TELLING = frozenset(
    {"betas", "momentum", "alpha", "etas", "step_sizes", "lambd", "momentum_decay", "lr_decay"}
)
"""Settings that only some optimizers have; they tell the class where a file doesn't name it."""


def _plain(value: Any) -> Any:
    """Counters and other dict classes as dicts, so that the file needs no class to be read."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value


def contents(
    *, model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int, losses: Sequence[float]
) -> dict[str, Any]:
    """The part that every checkpoint has."""
    return {
        "epoch": epoch,
        "model_state_dict": model.state_dict(),
        "optimizer_state_dict": optimizer.state_dict(),
        "optimizer_class": type(optimizer).__name__,
        "initial_lrs": [float(group.get("initial_lr", group["lr"])) for group in optimizer.param_groups],
        "losses": [float(loss) for loss in losses],
        "scheduler_state_dict": None,
        "scheduler_class": None,
        "scaler_state_dict": None,
    }


def schedule_contents(scheduler: Any) -> dict[str, Any]:
    """The scheduler's part; empty without one."""
    if scheduler is None:
        return {}
    return {
        "scheduler_state_dict": _plain(scheduler.state_dict()),
        "scheduler_class": type(scheduler).__name__,
    }


def write_checkpoint(path: Path, content: Mapping[str, Any]) -> None:
    """Write it whole or not at all."""
    write_whole(path, lambda file: torch.save(dict(content), file))


def read_data(path: Path) -> Any:
    """What a file of torch holds, on the CPU; never runs code from it.

    Raises: CodefyError ``files.unreadable``, naming what isn't plain data.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as problem:
        raise _refused(path, problem) from problem
    except MemoryError:
        raise
    except Exception as problem:
        # A damaged file can make torch fail in any way.
        raise CodefyError(
            f"{path.name} can't be read as a file of torch: {problem}", code="files.unreadable"
        ) from problem


def _refused(path: Path, problem: Exception) -> CodefyError:
    found = re.search(r"GLOBAL ([\w.]+)", str(problem))
    if not found:
        return CodefyError(f"{path.name} can't be read as a file of torch", code="files.unreadable")
    return CodefyError(
        f"{path.name} holds more than tensors and numbers (it wants to load {found.group(1)}); such a file could"
        " run code when it is read, so it isn't. Save the weights alone where it was made:"
        " torch.save(model.state_dict(), path).",
        code="files.unreadable",
    )


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Raises: CodefyError ``files.unreadable``, also for a file that is no checkpoint."""
    content = read_data(path)
    needed = ("model_state_dict", "optimizer_state_dict")
    if not isinstance(content, dict) or any(name not in content for name in needed):
        raise CodefyError(
            f"{path.name} is no checkpoint: it lacks {' or '.join(needed)}. A file of weights alone is for"
            " ModelLoader.",
            code="files.unreadable",
        )
    return content


def restore(content: Mapping[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Load a checkpoint into a model and its own optimizer, in place.

    Raises: UnfitError when the model, the optimizer's class or its groups are others than those saved; then
    neither has changed.
    """
    check_owner(model, optimizer)
    check_class(content, optimizer)
    check_fit(model, content["model_state_dict"])
    try:
        optimizer.load_state_dict(content["optimizer_state_dict"])
    except (ValueError, KeyError) as problem:
        raise UnfitError(f"The checkpoint's optimizer doesn't fit the wired one: {problem}") from problem
    model.load_state_dict(content["model_state_dict"])
    move_state(optimizer)


def check_owner(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Refuse an optimizer over another model's parameters."""
    own = {id(parameter) for parameter in model.parameters()}
    if not any(id(item) in own for group in optimizer.param_groups for item in group["params"]):
        raise UnfitError("The optimizer belongs to another model; wire the same model into both.")


def check_class(content: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> None:
    """Refuse a checkpoint of another optimizer class; old files are told by their settings."""
    mine, saved = type(optimizer).__name__, content.get("optimizer_class")
    if saved is None:
        groups = content["optimizer_state_dict"].get("param_groups") or [{}]
        if set(groups[0]) & _TELLING == set(optimizer.defaults) & _TELLING:
            return
        saved = "another optimizer"
    if saved != mine:
        raise UnfitError(
            f"The checkpoint was made with {saved}, the wired optimizer is {mine}: set Optimizer's type to the"
            " one of the checkpoint, or load the weights alone with ModelLoader."
        )


def check_fit(model: nn.Module, weights: Mapping[str, Any], *, strict: bool = True) -> None:
    """Refuse weights whose names (unless not ``strict``) or shapes aren't the model's."""
    mine = model.state_dict()
    missing = sorted(set(mine) - set(weights)) if strict else []
    extra = sorted(set(weights) - set(mine)) if strict else []
    shapes = [
        f"{name} {tuple(weights[name].shape)} instead of {tuple(mine[name].shape)}"
        for name in sorted(set(mine) & set(weights))
        if getattr(weights[name], "shape", None) != getattr(mine[name], "shape", None)
    ]
    parts = [
        f"{title}: {', '.join(names[:5])}{' …' if len(names) > 5 else ''}"
        for title, names in (("missing", missing), ("not in the model", extra), ("other shapes", shapes))
        if names
    ]
    if parts:
        raise UnfitError(f"The saved weights don't fit this model ({'; '.join(parts)}).")
