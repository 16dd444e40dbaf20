"""What a training tells while it goes: progress payloads, metrics, TensorBoard."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import JsonValue

from codefyui_core.plugin import CodefyError, NodeContext

BATCH_INTERVAL_S = 0.5
MOST_POINTS = 1000
"""Of a loss curve in one payload; longer ones are thinned, which keeps a payload far below its cap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReport:
    """One finished epoch, counted from 1."""

    epoch: int
    total_epochs: int
    lr: float
    losses: Sequence[float]
    val_losses: Sequence[float]
    val_accuracy: float | None
    patience_counter: int | None
    best_epoch: int | None


class ScalarWriter(Protocol):
    """The part of TensorBoard's writer that is used."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...
    def close(self) -> None: ...


def finite(value: float) -> float | None:
    """A number that JSON can hold, to 6 digits; None for NaN and the infinities."""
    return round(value, 6) if math.isfinite(value) else None


def number(name: str, value: float) -> dict[str, JsonValue]:
    """A payload's entry for a number: a non-finite one is null, beside the word for it."""
    shown: dict[str, JsonValue] = {name: finite(value)}
    if not math.isfinite(value):
        shown[f"{name}_text"] = "NaN" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return shown


def thinned(values: Sequence[float]) -> list[JsonValue]:
    """At most MOST_POINTS of a curve, evenly spread, the last one always."""
    stride = max(1, math.ceil(len(values) / MOST_POINTS))
    picked = values[::-1][::stride][::-1]
    return [finite(value) for value in picked]


def open_tensorboard(folder: Path) -> ScalarWriter:
    """A writer of event files in ``folder``.

    Raises: CodefyError naming the package when it isn't installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as problem:
        raise CodefyError(
            "TrainingLoop's tensorboard needs the package `tensorboard` on the machine that runs this; install"
            " it there (`pip install tensorboard`) or switch the param off.",
            code="node.missing_package",
        ) from problem
    writer: ScalarWriter = SummaryWriter(log_dir=str(folder))
    return writer


class Reporter:
    """Sends what a training has to say, batches no more often than every half second."""

    def __init__(
        self, context: NodeContext, clock: Callable[[], float], writer: ScalarWriter | None = None
    ) -> None:
        self._context, self._clock, self._writer = context, clock, writer
        self._last_batch = -math.inf

    def config(self, config: Mapping[str, JsonValue]) -> None:
        self._context.progress({"event": "config", "config": dict(config)})

    def batch(self, epoch: int, batch: int, total: int | None, loss: Callable[[], float]) -> None:
        """``loss`` is asked only when it is shown: reading it makes the CPU wait for the device."""
        now = self._clock()
        if now - self._last_batch < BATCH_INTERVAL_S:
            return
        self._last_batch = now
        self._context.progress(
            {
                "event": "batch",
                "epoch": epoch,
                "batch": batch,
                "total_batches": total,
                **number("loss", loss()),
            }
        )

    def epoch(self, report: EpochReport) -> None:
        self._context.progress(_epoch_payload(report))
        for name, value in _metrics(report).items():
            self._context.metric(name, value, report.epoch)
            if self._writer is not None:
                self._writer.add_scalar(name, value, report.epoch)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _epoch_payload(report: EpochReport) -> dict[str, JsonValue]:
    payload: dict[str, JsonValue] = {
        "event": "epoch",
        "epoch": report.epoch,
        "total_epochs": report.total_epochs,
        **number("loss", report.losses[-1]),
        "losses": thinned(report.losses),
        "lr": report.lr if math.isfinite(report.lr) else None,
    }
    if report.val_losses:
        payload |= number("val_loss", report.val_losses[-1])
        payload["val_losses"] = thinned(report.val_losses)
    if report.val_accuracy is not None:
        payload["val_accuracy"] = finite(report.val_accuracy)
    if report.patience_counter is not None:
        payload["patience_counter"] = report.patience_counter
        payload["best_epoch"] = report.best_epoch
    return payload


def _metrics(report: EpochReport) -> dict[str, float]:
    values: dict[str, Any] = {"train_loss": report.losses[-1], "lr": report.lr}
    if report.val_losses:
        values["val_loss"] = report.val_losses[-1]
    if report.val_accuracy is not None:
        values["val_accuracy"] = report.val_accuracy
    return values
