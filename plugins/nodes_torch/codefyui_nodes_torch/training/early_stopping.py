"""Stopping when nothing gets better, with the best weights kept."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn


class EarlyStopping:
    """Watches one loss; ``patience`` 0 watches nothing."""

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.best = math.inf
        self.best_epoch: int | None = None
        self.waited = 0
        self._weights: dict[str, Tensor] | None = None

    @property
    def is_over(self) -> bool:
        return self.patience > 0 and self.waited >= self.patience

    def see(self, loss: float, epoch: int, model: nn.Module) -> None:
        """Take an epoch's loss; strictly lower is better, NaN never is."""
        if self.patience <= 0:
            return
        if loss < self.best:
            self.best, self.best_epoch, self.waited = loss, epoch, 0
            self._weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
        else:
            self.waited += 1

    def restore(self, model: nn.Module) -> None:
        """Put the best weights back, if an epoch was ever better than none."""
        if self._weights is not None:
            model.load_state_dict(self._weights)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "best": self.best,
            "best_epoch": self.best_epoch,
            "waited": self.waited,
            "weights": self._weights,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """The reverse of ``state``; another patience goes on from the same count, 0 forgets it all."""
        if self.patience <= 0:
            return
        self.best, self.best_epoch = float(state["best"]), state["best_epoch"]
        self.waited, self._weights = int(state["waited"]), state["weights"]
