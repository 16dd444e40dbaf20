"""Optimizer, Loss and LRScheduler stand for torch's classes, exactly."""

import math
import warnings

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from codefyui_core.errors import CodefyError
from codefyui_core.testing.node_context import execute
from codefyui_nodes_torch.training import loss, optimizer
from codefyui_nodes_torch.training.loss import Loss, Target, fitted, target_of
from codefyui_nodes_torch.training.optimizer import Optimizer
from codefyui_nodes_torch.training.scheduler import TYPES, LRScheduler, fit_to_run


@pytest.mark.parametrize("kind", list(optimizer.CLASSES))
def test_an_optimizer_steps_as_torchs_own(kind, tmp_path):
    model = nn.Linear(3, 1)
    twin = nn.Linear(3, 1)
    twin.load_state_dict(model.state_dict())
    decay = 0.0 if kind == "Rprop" else 0.1
    mine = execute(Optimizer, {"model": model}, root=tmp_path, type=kind, lr=0.01, weight_decay=decay)[
        "optimizer"
    ]
    settings = {"lr": 0.01} if kind == "Rprop" else {"lr": 0.01, "weight_decay": decay}
    theirs = getattr(torch.optim, kind)(twin.parameters(), **settings)
    x = torch.randn(8, 3)
    for _ in range(3):
        for network, stepper in ((model, mine), (twin, theirs)):
            stepper.zero_grad()
            network(x).square().mean().backward()
            stepper.step()
    assert type(mine) is type(theirs)
    assert torch.equal(model.weight, twin.weight)


def test_rprop_with_decay_and_a_model_without_weights_are_refused(tmp_path):
    with pytest.raises(CodefyError, match="Rprop has no weight decay"):
        execute(Optimizer, {"model": nn.Linear(1, 1)}, root=tmp_path, type="Rprop", weight_decay=0.1)
    with pytest.raises(CodefyError, match="no parameters"):
        execute(Optimizer, {"model": nn.ReLU()}, root=tmp_path)


CASES = {
    "CrossEntropyLoss": (torch.randn(4, 3), torch.tensor([0, 1, 2, 1])),
    "NLLLoss": (torch.randn(4, 3).log_softmax(1), torch.tensor([0, 1, 2, 1])),
    "MSELoss": (torch.randn(4, 3), torch.randn(4, 3)),
    "L1Loss": (torch.randn(4, 3), torch.randn(4, 3)),
    "SmoothL1Loss": (torch.randn(4, 3), torch.randn(4, 3)),
    "HuberLoss": (torch.randn(4, 3), torch.randn(4, 3)),
    "BCEWithLogitsLoss": (torch.randn(4, 3), torch.rand(4, 3)),
    "BCELoss": (torch.rand(4, 3), torch.rand(4, 3)),
    "KLDivLoss": (torch.randn(4, 3).log_softmax(1), torch.randn(4, 3).softmax(1)),
}


@pytest.mark.parametrize("kind", list(CASES))
def test_a_loss_is_torchs_with_its_defaults(kind, tmp_path):
    output, target = CASES[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's KLDivLoss warns; ours must not
        expected = getattr(nn, kind)()(output, target)
    assert torch.allclose(execute(Loss, root=tmp_path, type=kind)["loss_fn"](output, target), expected)


def test_losses_of_two_outputs_can_be_made_but_not_trained_with(tmp_path):
    assert set(loss.CLASSES) - set(CASES) == {"MarginRankingLoss", "CosineEmbeddingLoss"}
    for kind in ("MarginRankingLoss", "CosineEmbeddingLoss"):
        with pytest.raises(CodefyError, match="two outputs"):
            target_of(execute(Loss, root=tmp_path, type=kind)["loss_fn"])


def test_targets_never_broadcast():
    flat = fitted(torch.zeros(4, 1), torch.arange(4), Target.SAME_SHAPE)
    assert flat.shape == (4, 1)
    assert flat.dtype == torch.float32
    assert fitted(torch.zeros(4, 3), torch.ones(4, 1), Target.CLASSES).tolist() == [1, 1, 1, 1]
    masks = fitted(torch.zeros(2, 3, 5, 5), torch.ones(2, 1, 5, 5), Target.CLASSES)
    assert masks.shape == (2, 5, 5)
    for kind in (Target.SAME_SHAPE, Target.CLASSES):
        with pytest.raises(CodefyError, match="answers"):
            fitted(torch.zeros(4, 3), torch.zeros(5), kind)


def _curve(scheduler, stepper, epochs):
    rates = []
    for _ in range(epochs):
        rates.append(stepper.param_groups[0]["lr"])
        stepper.step()
        if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
            scheduler.step(1.0)
        else:
            scheduler.step()
    return rates


EXPECTED = {
    "StepLR": lambda e: 0.1 * 0.5 ** (e // 2),
    "CosineAnnealingLR": lambda e: 0.05 * (1 + math.cos(math.pi * e / 4)),
    "ExponentialLR": lambda e: 0.1 * 0.5**e,
    "MultiStepLR": lambda e: 0.1 * 0.5 ** sum(e >= mark for mark in (2, 4, 6, 8)),
    "CosineAnnealingWarmRestarts": lambda e: 0.05 * (1 + math.cos(math.pi * (e % 4) / 4)),
}


@pytest.mark.parametrize("kind", list(EXPECTED))
def test_a_schedule_follows_its_formula(kind, tmp_path):
    stepper = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = execute(
        LRScheduler, {"optimizer": stepper}, root=tmp_path, type=kind, step_size=2, gamma=0.5, T_max=4
    )["scheduler"]
    assert _curve(scheduler, stepper, 10 if kind == "MultiStepLR" else 4) == pytest.approx(
        [EXPECTED[kind](epoch) for epoch in range(10 if kind == "MultiStepLR" else 4)]
    )


def test_plateau_drops_after_ten_epochs_without_progress(tmp_path):
    stepper = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = execute(
        LRScheduler, {"optimizer": stepper}, root=tmp_path, type="ReduceLROnPlateau", gamma=0.5
    )["scheduler"]
    assert _curve(scheduler, stepper, 14) == pytest.approx([0.1] * 12 + [0.05] * 2)


@pytest.mark.parametrize("kind", ["SGD", "Adam", "Adagrad", "Rprop"])
def test_one_cycle_fits_any_optimizer_and_the_steps_of_the_run(kind, tmp_path):
    stepper, twin = (getattr(torch.optim, kind)([nn.Parameter(torch.zeros(1))], lr=0.1) for _ in range(2))
    scheduler = execute(
        LRScheduler, {"optimizer": stepper}, root=tmp_path, type="OneCycleLR", max_lr=0.5, total_steps=1000
    )["scheduler"]
    scheduler = fit_to_run(scheduler, stepper, 12)
    cycles = kind in {"SGD", "Adam"}
    reference = lr_scheduler.OneCycleLR(twin, max_lr=0.5, total_steps=12, cycle_momentum=cycles)
    assert _curve(scheduler, stepper, 11) == pytest.approx(_curve(reference, twin, 11))


def test_every_schedule_is_tested_here():
    assert set(EXPECTED) | {"ReduceLROnPlateau", "OneCycleLR"} == set(TYPES)


def test_a_schedule_of_no_epochs_is_refused(tmp_path):
    stepper = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    with pytest.raises(CodefyError, match="1 or more"):
        execute(LRScheduler, {"optimizer": stepper}, root=tmp_path, step_size=0)
