"""When a training's checkpoints are written, and where."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from codefyui_core.plugin import Family, NodeContext

from .checkpoint import write_checkpoint

State = Callable[[], Mapping[str, Any]]


def run_label(context: NodeContext) -> str:
    """``<run>-<node>``, with the characters of the node's id that a file name can't hold replaced."""
    return f"{context.run_id}-{re.sub(r'[^A-Za-z0-9_.-]', '_', context.node_id)}"


class Keeper:
    """Writes checkpoints below the models folder: ``periodic/`` and, at a stop, ``interrupted/``."""

    def __init__(self, context: NodeContext, every_epochs: int, every_steps: int) -> None:
        self._context, self._every_epochs, self._every_steps = context, every_epochs, every_steps

    def after_epoch(self, epoch: int, state: State) -> None:
        """``epoch`` epochs are finished."""
        if self._every_epochs > 0 and epoch % self._every_epochs == 0:
            self._write("periodic", f"e{epoch}", state, {"epoch": epoch})

    def after_step(self, step: int, epoch: int, batch: int, state: State) -> None:
        """``step`` optimizer steps are done, of these ``batch`` in the going ``epoch`` (from 1)."""
        if self._every_steps > 0 and step % self._every_steps == 0:
            self._write(
                "periodic", f"e{epoch}b{batch}", state, {"epoch": epoch, "batch": batch, "step": step}
            )

    def interrupted(self, epoch: int, batch: int, state: State) -> None:
        """The run stops after ``batch`` batches of the going ``epoch`` (from 1)."""
        meta = {"epoch": epoch, "batch": batch, "interrupted": True}
        self._write("interrupted", f"e{epoch}b{batch}", state, meta)

    def _write(self, folder: str, moment: str, state: State, meta: Mapping[str, int | bool]) -> Path:
        name = f"{folder}/{run_label(self._context)}-{moment}.pt"
        path = self._context.output_file(Family.MODELS, name)
        write_checkpoint(path, state())
        if self._context.records:
            self._context.artifact("checkpoint", path, dict(meta))
        self._context.log(f"checkpoint models/{name}")
        return path
