"""The training itself: epochs, batches, validation, stopping and going on.

Each epoch has a seed of its own, which sets the order of its batches and all randomness inside the model.
A training that goes on from a checkpoint therefore takes the very steps that an unbroken one takes, in
the middle of an epoch too.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler

from codefyui_core.plugin import NodeContext

from ..base import UnfitError
from .batches import as_batch
from .checkpoint import contents, restore, schedule_contents
from .devices import move_model, move_state
from .early_stopping import EarlyStopping
from .keeping import Keeper
from .loss import target_of
from .measures import Hits, Mean, hits_of, loss_of
from .precision import Stepper
from .randomness import own_randomness, random_states, set_random_states
from .reports import EpochReport, Reporter
from .scheduler import fit_to_run
from .state import History, Partial, Parts, Settings, partial_of
from .team import ALONE, Team


class Stopped(Exception):
    """The run was asked to stop; the checkpoint is written."""


class Training:
    """One training of one model. The model, its optimizer and its scheduler are changed in place."""

    def __init__(
        self,
        parts: Parts,
        settings: Settings,
        context: NodeContext,
        reporter: Reporter,
        keeper: Keeper,
        team: Team = ALONE,
    ) -> None:
        """``parts`` have this rank's loaders when there is a team."""
        self._team = team
        self._kind = target_of(parts.loss_fn)
        self._parts, self._settings, self._context = parts, settings, context
        self._reporter, self._keeper = reporter, keeper
        self.history = History()
        self.stopping = EarlyStopping(settings.patience)
        self.interrupted = False
        self._partial: Partial | None = None
        self._steps = 0
        move_model(parts.model, settings.device)
        move_state(parts.optimizer)
        if isinstance(parts.loss_fn, nn.Module):
            parts.loss_fn.to(settings.device)
        self._module = team.wrapped(parts.model, settings.device)
        self._scheduler = self._fitted_scheduler()
        self._stepper = Stepper(
            settings.precision, settings.device, parts.model, parts.optimizer, settings.clip_norm
        )

    @property
    def batches_per_epoch(self) -> int | None:
        """None for a loader that doesn't know."""
        try:
            return len(self._parts.loader)
        except TypeError:
            return None

    def run(self) -> None:
        """Train until the epochs are over, nothing gets better, or the run is to stop."""
        try:
            while self.history.epochs < self._settings.epochs and not self.stopping.is_over:
                self._epoch()
        except Stopped:
            self.interrupted = True
            return
        self.stopping.restore(self._parts.model)

    # An epoch

    def _epoch(self) -> None:
        partial = self._partial or Partial(seed=self._seed(self.history.epochs + 1))
        self._partial = partial
        with own_randomness(self._settings.device, self._team.own_seed(partial.seed)):
            self._train(partial)
            val_loss, accuracy = self._validate()
        self._partial = None
        mean = self._team.sum_mean(partial.mean)
        self.history.losses.append(mean.value)
        if val_loss is not None:
            self.history.val_losses.append(val_loss)
        if accuracy is not None:
            self.history.val_accuracies.append(accuracy)
        self.history.lrs.append(float(self._parts.optimizer.param_groups[0]["lr"]))
        watched = mean.value if val_loss is None else val_loss
        self.stopping.see(watched, self.history.epochs, self._parts.model)
        self._step_scheduler(watched)
        self._reporter.epoch(self._report(accuracy))
        self._keeper.after_epoch(self.history.epochs, self.checkpoint)

    def _seed(self, epoch: int) -> int:
        def made() -> int:
            seed = self._context.derive_seed(f"epoch/{epoch}")
            return int(torch.randint(2**62, ())) if seed is None else seed

        return self._team.told(made)

    def _train(self, partial: Partial) -> None:
        self._parts.model.train()
        items = self._batches_left(partial)
        while True:
            # Asked before a batch is fetched: fetching may draw random numbers.
            if self._team.stops(self._context):
                self._stop(partial)
            item = next(items, None)
            if item is None:
                return
            self._train_batch(item, partial)

    def _batches_left(self, partial: Partial) -> Iterator[Any]:
        self._team.order(self._parts.loader, partial.seed)
        iterator = iter(self._parts.loader)
        for _ in range(partial.batches):
            if next(iterator, None) is None:
                raise UnfitError("The checkpoint is further in its epoch than this loader has batches.")
        if partial.random_states is not None:
            # Those of the first rank: the others go on from fresh ones.
            if self._team.rank == 0:
                set_random_states(partial.random_states, self._settings.device)
            partial.random_states = None
        yield from iterator

    def _train_batch(self, item: Any, partial: Partial) -> None:
        parts, device = self._parts, self._settings.device
        batch = as_batch(item, parts.model).on(device)
        parts.optimizer.zero_grad()
        with self._stepper.forward():
            output = self._module(*batch.args, **batch.kwargs)
            loss = loss_of(parts.loss_fn, output, batch.target, self._kind)
        stepped = self._stepper.step(loss)
        if stepped:
            self._step_one_cycle()
        partial.mean.add(loss.detach(), batch.size)
        partial.batches += 1
        self._steps += 1
        epoch = self.history.epochs + 1
        self._reporter.batch(epoch, partial.batches, self.batches_per_epoch, loss.item)
        self._keeper.after_step(self._steps, epoch, partial.batches, lambda: self._middle(partial))

    def _validate(self) -> tuple[float | None, float | None]:
        parts = self._parts
        if parts.val_loader is None:
            return None, None
        mean, hits = Mean(), Hits()
        parts.model.eval()
        with torch.no_grad():
            for item in self._team.rounds(parts.val_loader):
                if self._team.stops(self._context) and self._partial is not None:
                    self._stop(self._partial)
                if item is None:
                    continue
                batch = as_batch(item, parts.model).on(self._settings.device)
                with self._stepper.forward():
                    output = parts.model(*batch.args, **batch.kwargs)
                    loss = loss_of(parts.loss_fn, output, batch.target, self._kind)
                mean.add(loss, batch.size)
                hits.add(hits_of(output, batch.target, self._kind))
        parts.model.train()
        return self._team.sum_mean(mean).value, self._team.sum_hits(hits).share

    def _report(self, accuracy: float | None) -> EpochReport:
        watching = self._settings.patience > 0
        return EpochReport(
            epoch=self.history.epochs,
            total_epochs=self._settings.epochs,
            lr=self.history.lrs[-1],
            losses=self.history.losses,
            val_losses=self.history.val_losses,
            val_accuracy=accuracy,
            patience_counter=self.stopping.waited if watching else None,
            best_epoch=self.stopping.best_epoch if watching else None,
        )

    # The schedule

    def _fitted_scheduler(self) -> Any | None:
        scheduler = self._parts.scheduler
        if not isinstance(scheduler, lr_scheduler.OneCycleLR):
            return scheduler
        if not self.batches_per_epoch:
            raise UnfitError("OneCycleLR needs to know its steps, and this loader has no length.")
        return fit_to_run(scheduler, self._parts.optimizer, self._settings.epochs * self.batches_per_epoch)

    def _step_one_cycle(self) -> None:
        cycle = self._scheduler
        # After the last step the curve is over: torch's formula would let the rate rise again.
        if isinstance(cycle, lr_scheduler.OneCycleLR) and cycle.last_epoch + 1 < cycle.total_steps:
            cycle.step()

    def _step_scheduler(self, watched: float) -> None:
        if self._scheduler is None or isinstance(self._scheduler, lr_scheduler.OneCycleLR):
            return
        if isinstance(self._scheduler, lr_scheduler.ReduceLROnPlateau):
            self._scheduler.step(watched)
        else:
            self._scheduler.step()

    # Stopping and going on

    def _stop(self, partial: Partial) -> None:
        self._keeper.interrupted(self.history.epochs + 1, partial.batches, lambda: self._middle(partial))
        raise Stopped

    def _middle(self, partial: Partial) -> dict[str, Any]:
        states = partial.random_states or random_states(self._settings.device)
        return self.checkpoint() | {"partial": partial.saved(states)}

    def checkpoint(self) -> dict[str, Any]:
        """The state between two epochs."""
        parts, history = self._parts, self.history
        scaler = self._stepper.scaler
        return (
            contents(
                model=parts.model, optimizer=parts.optimizer, epoch=history.epochs, losses=history.losses
            )
            | schedule_contents(self._scheduler)
            | {
                "scaler_state_dict": scaler.state_dict() if scaler else None,
                "val_losses": list(history.val_losses),
                "val_accuracies": list(history.val_accuracies),
                "lrs": list(history.lrs),
                "step": self._steps,
                "early_stopping": self.stopping.state(),
            }
        )

    def resume(self, content: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; a plain one of CheckpointSaver has no schedule and starts its own.

        Raises: UnfitError when the model, optimizer or scheduler is another.
        """
        saved = content.get("scheduler_class")
        mine = None if self._scheduler is None else type(self._scheduler).__name__
        if saved is not None and saved != mine:
            raise UnfitError(
                f"The checkpoint was trained with the schedule {saved}, this training has {mine or 'none'};"
                " wire an LRScheduler of that type."
            )
        restore(content, self._parts.model, self._parts.optimizer)
        self._resume_schedule(content.get("scheduler_state_dict"))
        if self._stepper.scaler and content.get("scaler_state_dict"):
            self._stepper.scaler.load_state_dict(content["scaler_state_dict"])
        self._resume_history(content)
        if content.get("early_stopping"):
            self.stopping.load(content["early_stopping"])
        if content.get("partial"):
            self._partial = partial_of(content["partial"])
            # The steps were taken before the checkpoint; torch would warn that there were none.
            self._parts.optimizer._opt_called = True  # type: ignore[attr-defined]

    def _resume_schedule(self, state: Mapping[str, Any] | None) -> None:
        if self._scheduler is None or not state:
            return
        if isinstance(self._scheduler, lr_scheduler.OneCycleLR):
            # The curve is that of this run's epochs; only the place on it is the checkpoint's.
            self._scheduler.last_epoch = int(state["last_epoch"])
            self._scheduler._step_count = int(state.get("_step_count", 0))
            return
        self._scheduler.load_state_dict(dict(state))

    def _resume_history(self, content: Mapping[str, Any]) -> None:
        losses = _floats(content.get("losses"))
        epoch = int(content.get("epoch", len(losses)))
        # A checkpoint of CheckpointSaver may tell an epoch without its losses.
        self.history.losses = losses[:epoch] + [math.nan] * (epoch - len(losses))
        self.history.val_losses = _floats(content.get("val_losses"))
        self.history.val_accuracies = _floats(content.get("val_accuracies"))
        self.history.lrs = _floats(content.get("lrs"))
        self._steps = int(content.get("step", epoch * (self.batches_per_epoch or 0)))


def _floats(values: Any) -> list[float]:
    return [] if values is None else [float(value) for value in values]
