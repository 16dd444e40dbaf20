"""Trains a model on what a loader yields."""

import time
from collections.abc import Mapping
from dataclasses import replace
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
from ..data.sharing import LoaderPlan
from .checkpoint import check_owner, read_checkpoint
from .devices import chosen_device, wired_model
from .keeping import Keeper, run_label
from .loop import Training
from .precision import Precision
from .rank import RankJob, Trained
from .ranks import apply, rank_count, train_by_ranks
from .reports import Reporter, open_tensorboard
from .state import Files, Parts, Settings


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
            description="ddp trains on all cards of the run at once, each with batches of its own",
        ),
        Param(
            name="ranks",
            kind=ParamKind.INT,
            default=0,
            minimum=0,
            advanced=True,
            description="Processes of strategy ddp; 0: one for each card, two on a CPU",
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
        parts, settings = _parts(inputs), _settings(params, context)
        check_owner(parts.model, parts.optimizer)
        _check_schedule(parts)
        files = _files(params, context)
        ranks = _ranks(params, settings, context)
        trained: Training | Trained
        if ranks > 1:
            trained = _by_ranks(ranks, parts, settings, files, context)
        else:
            trained = _here(parts, settings, files, context)
        if files.board is not None and context.records:
            context.artifact("tensorboard", files.board, {"folder": True})
        return _outputs(trained, parts)


def _files(params: Mapping[str, Any], context: NodeContext) -> Files:
    start = None
    if params["resume_from"]:
        start = read_checkpoint(context.input_file(Family.MODELS, params["resume_from"]))
        context.log(f"going on from {params['resume_from']} after {start.get('epoch', 0)} epochs")
    return Files(
        every_epochs=int(params["checkpoint_every"]),
        every_steps=int(params["checkpoint_every_steps"]),
        start=start,
        board=_board(context) if params["tensorboard"] else None,
    )


def _ranks(params: Mapping[str, Any], settings: Settings, context: NodeContext) -> int:
    if params["strategy"] != "ddp":
        return 1
    ranks = rank_count(int(params["ranks"]), settings.device)
    if ranks == 1:
        context.log("strategy ddp has one device here, so one process trains")
    return ranks


def _here(parts: Parts, settings: Settings, files: Files, context: NodeContext) -> Training:
    writer = None if files.board is None else open_tensorboard(files.board)
    reporter = Reporter(context, time.monotonic, writer)
    keeper = Keeper(context, files.every_epochs, files.every_steps)
    training = Training(parts, settings, context, reporter, keeper)
    if files.start is not None:
        training.resume(files.start)
    reporter.config(_config(parts, settings))
    try:
        training.run()
    finally:
        reporter.close()
    return training


def _by_ranks(ranks: int, parts: Parts, settings: Settings, files: Files, context: NodeContext) -> Trained:
    measures = parts.val_loader
    job = RankJob(
        parts=replace(parts, loader=None, val_loader=None),
        train=LoaderPlan.of(parts.loader, "dataloader"),
        validate=None if measures is None else LoaderPlan.of(measures, "val_dataloader"),
        settings=settings,
        files=files,
        run_id=context.run_id,
        node_id=context.node_id,
        records=context.records,
    )
    Reporter(context, time.monotonic).config({**_config(parts, settings), "ranks": ranks})
    trained = train_by_ranks(job, ranks, context)
    apply(trained, parts)
    return trained


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


def _outputs(trained: Training | Trained, parts: Parts) -> dict[str, Any]:
    history, stopping = trained.history, trained.stopping
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
    if trained.interrupted:
        outputs["__interrupted__"] = True
    return outputs
