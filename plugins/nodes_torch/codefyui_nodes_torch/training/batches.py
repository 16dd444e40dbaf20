"""What a loader yields, told apart into what the model takes and what the loss compares with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..base import UnfitError
from .devices import moved

TARGET_KEYS = ("target", "targets", "label", "labels", "y")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch: the model's inputs by position or by name, and the target."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any]
    target: Any

    def on(self, device: torch.device) -> "Batch":
        return Batch(
            args=moved(self.args, device),
            kwargs=moved(self.kwargs, device),
            target=moved(self.target, device),
        )

    @property
    def size(self) -> int:
        """Samples in it."""
        return _length(self.target)


def _length(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.shape[0] if value.ndim else 1
    if isinstance(value, Mapping):
        return _length(next(iter(value.values())))
    return len(value)


def as_batch(item: Any, model: nn.Module) -> Batch:
    """Tell a loader's item apart: (input, target), (input, …, target), ((input, …), target), or a dict
    of inputs by name with the target under ``target``, ``label`` or ``y``.

    Raises: UnfitError when it doesn't fit the model's inputs.
    """
    names: tuple[str, ...] = getattr(model, "input_names", ())
    if isinstance(item, Mapping):
        return _from_mapping(item, names)
    if isinstance(item, list | tuple) and len(item) >= 2:
        *inputs, target = item
        if len(inputs) == 1 and len(names) > 1:
            return _from_nested(inputs[0], names, target)
        if len(inputs) == max(len(names), 1):
            return Batch(args=tuple(inputs), kwargs={}, target=target)
    raise _unfit(item, names)


def _from_mapping(item: Mapping[str, Any], names: tuple[str, ...]) -> Batch:
    target = next((key for key in TARGET_KEYS if key in item and key not in names), None)
    if target is None:
        raise _unfit(item, names)
    inputs = {key: value for key, value in item.items() if key != target}
    if names and all(name in inputs for name in names):
        return Batch(kwargs={name: inputs[name] for name in names}, target=item[target])
    if len(names) <= 1 and len(inputs) == 1:
        return Batch(args=tuple(inputs.values()), kwargs={}, target=item[target])
    raise _unfit(item, names)


def _from_nested(inputs: Any, names: tuple[str, ...], target: Any) -> Batch:
    if isinstance(inputs, Mapping) and all(name in inputs for name in names):
        return Batch(kwargs={name: inputs[name] for name in names}, target=target)
    if isinstance(inputs, list | tuple) and len(inputs) == len(names):
        return Batch(args=tuple(inputs), kwargs={}, target=target)
    raise _unfit((inputs, target), names)


def _unfit(item: Any, names: tuple[str, ...]) -> UnfitError:
    if isinstance(item, Mapping):
        found = f"a dict with {', '.join(map(str, item))}"
    elif isinstance(item, list | tuple):
        found = f"{len(item)} parts"
    else:
        found = type(item).__name__
    wanted = ", ".join(names) if names else "one input"
    return UnfitError(
        f"The model takes {wanted}, and the loss a target; the loader yields {found}. Let the dataset give"
        " (input, …, target), or a dict of the inputs by name with the target under 'target'."
    )
