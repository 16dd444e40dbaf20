"""Losses and hits of single batches, and their sums over an epoch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..base import UnfitError
from .loss import Target, fitted

_HALF = 0.5


@dataclass(slots=True, kw_only=True)
class Mean:
    """A mean weighed by samples, so that a short last batch counts for what it is.

    It is summed up on the device that the losses lie on: reading a number from there makes the CPU wait.
    """

    total: float | Tensor = 0.0
    samples: int = 0

    def add(self, mean: Tensor, samples: int) -> None:
        wide = mean.float() if mean.device.type == "mps" else mean.double()
        self.total = self.total + wide * samples
        self.samples += samples

    @property
    def value(self) -> float:
        """0 before the first sample."""
        return float(self.total) / self.samples if self.samples else 0.0


@dataclass(slots=True, kw_only=True)
class Hits:
    """Right answers of all answers."""

    correct: int = 0
    total: int = 0

    def add(self, pair: tuple[int, int] | None) -> None:
        if pair:
            self.correct += pair[0]
            self.total += pair[1]

    @property
    def share(self) -> float | None:
        """None when nothing could be counted."""
        return self.correct / self.total if self.total else None


def loss_of(loss_fn: nn.Module, output: Any, target: Any, kind: Target) -> Tensor:
    """The loss of one batch; for several outputs, the sum over those of the same name.

    Raises: UnfitError when output and target can't be compared.
    """
    if isinstance(output, Mapping):
        if not isinstance(target, Mapping) or set(target) != set(output):
            raise UnfitError(
                f"The model answers {', '.join(output)}; the loader's target must be a dict with the same names."
            )
        losses = [loss_of(loss_fn, output[name], target[name], kind) for name in output]
        return torch.stack(losses).sum()
    loss: Tensor = loss_fn(output, fitted(output, target, kind))
    return loss


def hits_of(output: Any, target: Any, kind: Target) -> tuple[int, int] | None:
    """Right answers and answers in a batch; None for losses that aren't about classes."""
    if not isinstance(output, Tensor) or not isinstance(target, Tensor):
        return None
    goal = fitted(output, target, kind)
    match kind:
        case Target.CLASSES:
            guess = output.argmax(dim=1)
            goal = goal.argmax(dim=1) if goal.is_floating_point() else goal
        case Target.BINARY_LOGITS:
            guess, goal = output > 0, goal > _HALF
        case Target.BINARY:
            guess, goal = output > _HALF, goal > _HALF
        case _:
            return None
    return int((guess == goal).sum()), goal.numel()
