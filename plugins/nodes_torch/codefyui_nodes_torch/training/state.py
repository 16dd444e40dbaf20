"""What a training is made of, and where it stands."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .measures import Mean
from .precision import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What is trained, with what, on what."""

    model: nn.Module
    loader: Any
    optimizer: torch.optim.Optimizer
    loss_fn: nn.Module
    val_loader: Any | None = None
    scheduler: Any | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How it is trained."""

    epochs: int
    device: torch.device
    patience: int = 0
    clip_norm: float = 0.0
    precision: Precision = Precision.FP32


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """What a training reads and leaves on disk."""

    every_epochs: int = 0
    every_steps: int = 0
    """Epochs, optimizer steps between checkpoints; 0: none."""
    start: Mapping[str, Any] | None = None
    """A checkpoint to go on from."""
    board: Path | None = None
    """Folder for TensorBoard's event files."""


@dataclass(slots=True, kw_only=True)
class History:
    """What the epochs so far gave."""

    losses: list[float] = field(default_factory=list)
    val_losses: list[float] = field(default_factory=list)
    val_accuracies: list[float] = field(default_factory=list)
    lrs: list[float] = field(default_factory=list)

    @property
    def epochs(self) -> int:
        return len(self.losses)


@dataclass(slots=True, kw_only=True)
class Partial:
    """The epoch that is going on."""

    seed: int
    batches: int = 0
    mean: Mean = field(default_factory=Mean)
    random_states: tuple[Tensor, ...] | None = None
    """Taken at a checkpoint, to go on from after the batches done were skipped."""

    def saved(self, states: tuple[Tensor, ...]) -> dict[str, Any]:
        """For a checkpoint, with the random states of now."""
        return {
            "seed": self.seed,
            "batches": self.batches,
            "total": float(self.mean.total),
            "samples": self.mean.samples,
            "random_states": list(states),
        }


def partial_of(saved: Mapping[str, Any]) -> Partial:
    """The reverse of ``Partial.saved``."""
    return Partial(
        seed=int(saved["seed"]),
        batches=int(saved["batches"]),
        mean=Mean(total=float(saved["total"]), samples=int(saved["samples"])),
        random_states=tuple(saved["random_states"]),
    )
