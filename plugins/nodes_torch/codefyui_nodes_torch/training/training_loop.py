"""Trains a model on what a loader yields."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import JsonValue
from typing_extensions import override

from codefyui_core.plugin import (
    DataType,
    Family,
    FileRole,
    FileRule,
    Node,
    NodeContext,
    Param,
    ParamKind,
    Port,
)

from ..base import UnfitError
from .checkpoint import check_owner, read_checkpoint
from .devices import chosen_device, wired_model
from .keeping import Keeper, run_label
from .loop import Training
from .precision import Precision
from .reports import Reporter, open_tensorboard
from .state import Parts, Settings


class TrainingLoop(Node):
    type = "TrainingLoop"
    category = "Training"
    description = (
        "Trains the wired model with the wired optimizer, in place. A stop writes a checkpoint that resume_from"
        " goes on from."
    )
    inputs = (
        Port(name="model", type=DataType.MODEL, description="The model to train"),
        Port(name="dataloader", type=DataType.DATALOADER, description="Batches to train on"),
        Port(name="optimizer", type=DataType.OPTIMIZER, description="An optimizer of the same model"),
        Port(name="loss_fn", type=DataType.LOSS_FN, description="What to make small"),
        Port(
            name="val_dataloader",
            type=DataType.DATALOADER,
            optional=True,
            description="Batches to measure on after every epoch",
        ),
        Port(
            name="lr_scheduler",
            type=DataType.ANY,
            optional=True,
            description="A schedule over the same optimizer",
        ),
    )
    outputs = (
        Port(name="model", type=DataType.MODEL, description="The trained model"),
        Port(name="losses", type=DataType.TENSOR, description="Training loss of each epoch, float32"),
        Port(name="val_losses", type=DataType.TENSOR, description="Validation losses; empty without any"),
        Port(name="metrics", type=DataType.ANY, description="Final numbers, by name"),
    )
    params = (
        Param(
            name="epochs",
            kind=ParamKind.INT,
            default=5,
            minimum=1,
            description="Passes over the data; a resumed training counts those of its checkpoint in",
        ),
        Param(
            name="device",
            kind=ParamKind.SELECT,
            default="auto",
            options=("auto", "cpu", "cuda", "mps"),
            description="auto follows the run",
        ),
        Param(
            name="early_stopping_patience",
            kind=ParamKind.INT,
            default=0,
            minimum=0,
            description="Stop after so many epochs without a lower loss and take the best weights; 0 never",
        ),
        Param(
            name="grad_clip_norm",
            kind=ParamKind.FLOAT,
            default=0.0,
            minimum=0.0,
            description="Longest gradient, as a norm over all parameters; 0 any",
        ),
        Param(
            name="precision",
            kind=ParamKind.SELECT,
            default=Precision.FP32.value,
            options=tuple(item.value for item in Precision),
            advanced=True,
            description="Number format of forward passes",
        ),
        Param(
            name="strategy",
            kind=ParamKind.SELECT,
            default="single",
            options=("single", "ddp"),
            advanced=True,
            description="One device, or several of one machine",
        ),
        Param(
            name="checkpoint_every",
            kind=ParamKind.INT,
            default=0,
            minimum=0,
            advanced=True,
            description="Epochs between checkpoints; 0 none",
        ),
        Param(
            name="checkpoint_every_steps",
            kind=ParamKind.INT,
            default=0,
            minimum=0,
            advanced=True,
            description="Optimizer steps between checkpoints; 0 none",
        ),
        Param(
            name="tensorboard",
            kind=ParamKind.BOOL,
            default=False,
            advanced=True,
            description="Write event files for TensorBoard",
        ),
        Param(
            name="resume_from",
            kind=ParamKind.MODEL_FILE,
            default="",
            family=Family.MODELS,
            advanced=True,
            description="A checkpoint to go on from",
        ),
    )
    files = (
        FileRule(role=FileRole.RECORDS, family=Family.MODELS, when="checkpoint_every"),
        FileRule(role=FileRole.RECORDS, family=Family.MODELS, when="checkpoint_every_steps"),
        FileRule(role=FileRole.RECORDS, family=Family.OUTPUT, when="tensorboard"),
    )
    cacheable = False

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        _check_strategy(params["strategy"])
        parts, settings = _parts(inputs), _settings(params, context)
        check_owner(parts.model, parts.optimizer)
        _check_schedule(parts)
        start = (
            read_checkpoint(context.input_file(Family.MODELS, params["resume_from"]))
            if params["resume_from"]
            else None
        )
        board = _board(context) if params["tensorboard"] else None
        reporter = Reporter(context, time.monotonic, open_tensorboard(board) if board else None)
        keeper = Keeper(context, int(params["checkpoint_every"]), int(params["checkpoint_every_steps"]))
        training = Training(parts, settings, context, reporter, keeper)
        if start is not None:
            training.resume(start)
            context.log(f"going on from {params['resume_from']} after {training.history.epochs} epochs")
        reporter.config(_config(parts, settings))
        try:
            training.run()
        finally:
            reporter.close()
        if board is not None and context.records:
            context.artifact("tensorboard", board, {"folder": True})
        return _outputs(training, parts)


def _check_strategy(strategy: str) -> None:
    if strategy != "single":
        raise UnfitError(
            "TrainingLoop: strategy ddp isn't supported by this version; choose single, which trains on one"
            " device."
        )


def _check_schedule(parts: Parts) -> None:
    if parts.scheduler is not None and getattr(parts.scheduler, "optimizer", None) is not parts.optimizer:
        raise UnfitError(
            "TrainingLoop: lr_scheduler needs a schedule over the optimizer that is wired here; wire that"
            " optimizer into LRScheduler."
        )


def _parts(inputs: Mapping[str, Any]) -> Parts:
    return Parts(
        model=wired_model(inputs, "TrainingLoop"),
        loader=inputs["dataloader"],
        optimizer=inputs["optimizer"],
        loss_fn=inputs["loss_fn"],
        val_loader=inputs.get("val_dataloader"),
        scheduler=inputs.get("lr_scheduler"),
    )


def _settings(params: Mapping[str, Any], context: NodeContext) -> Settings:
    return Settings(
        epochs=int(params["epochs"]),
        device=chosen_device(params["device"], context),
        patience=int(params["early_stopping_patience"]),
        clip_norm=float(params["grad_clip_norm"]),
        precision=Precision(params["precision"]),
    )


def _board(context: NodeContext) -> Path:
    folder = context.output_file(Family.OUTPUT, f"tensorboard/{run_label(context)}")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _config(parts: Parts, settings: Settings) -> dict[str, JsonValue]:
    counts = [(item.numel(), item.requires_grad) for item in parts.model.parameters()]
    return {
        "model_class": type(parts.model).__name__,
        "params": sum(size for size, _ in counts),
        "trainable": sum(size for size, trains in counts if trains),
        "optimizer": type(parts.optimizer).__name__,
        "lr": float(parts.optimizer.param_groups[0]["lr"]),
        "loss_fn": type(parts.loss_fn).__name__,
        "epochs": settings.epochs,
        "device": str(settings.device),
        "batch_size": getattr(parts.loader, "batch_size", None),
        "early_stopping": settings.patience > 0,
        "patience": settings.patience,
        "grad_clip_norm": settings.clip_norm if settings.clip_norm > 0 else "disabled",
        "has_validation": parts.val_loader is not None,
        "has_lr_scheduler": parts.scheduler is not None,
        "precision": settings.precision.value,
    }


def _outputs(training: Training, parts: Parts) -> dict[str, Any]:
    history, stopping = training.history, training.stopping
    metrics = {
        "final_train_loss": history.losses[-1] if history.losses else None,
        "final_val_loss": history.val_losses[-1] if history.val_losses else None,
        "final_val_accuracy": history.val_accuracies[-1] if history.val_accuracies else None,
        "best_epoch": stopping.best_epoch if stopping.patience > 0 else history.epochs,
        "total_epochs_run": history.epochs,
        "stopped_early": stopping.is_over,
        "lr_history": list(history.lrs),
    }
    outputs: dict[str, Any] = {
        "model": parts.model,
        "losses": torch.tensor(history.losses, dtype=torch.float32),
        "val_losses": torch.tensor(history.val_losses, dtype=torch.float32),
        "metrics": metrics,
    }
    if training.interrupted:
        outputs["__interrupted__"] = True
    return outputs
