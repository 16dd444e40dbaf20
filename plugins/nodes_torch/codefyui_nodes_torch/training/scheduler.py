"""Learning rate schedules over a wired optimizer."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from torch.optim import Optimizer, lr_scheduler
from typing_extensions import override

from codefyui_core.plugin import DataType, Node, NodeContext, Param, ParamKind, Port

from ..base import UnfitError

Scheduler: TypeAlias = lr_scheduler.LRScheduler

TYPES = (
    "StepLR",
    "CosineAnnealingLR",
    "ExponentialLR",
    "ReduceLROnPlateau",
    "CosineAnnealingWarmRestarts",
    "MultiStepLR",
    "OneCycleLR",
)
_MILESTONES = 4


def one_cycle(optimizer: Optimizer, max_lr: float | list[float], total_steps: int) -> lr_scheduler.OneCycleLR:
    """The one-cycle policy (Smith and Topin, 2017, arXiv:1708.07120) over ``total_steps`` optimizer steps.

    Momentum is cycled where the optimizer has one.
    """
    has_momentum = "momentum" in optimizer.defaults or "betas" in optimizer.defaults
    return lr_scheduler.OneCycleLR(
        optimizer, max_lr=max_lr, total_steps=total_steps, cycle_momentum=has_momentum
    )


def fit_to_run(scheduler: Any, optimizer: Optimizer, total_steps: int) -> Any:
    """A one-cycle schedule made anew for the steps that a run really has; every other one unchanged."""
    if not isinstance(scheduler, lr_scheduler.OneCycleLR) or scheduler.total_steps == total_steps:
        return scheduler
    return one_cycle(optimizer, [group["max_lr"] for group in optimizer.param_groups], total_steps)


def _build(kind: str, optimizer: Optimizer, params: Mapping[str, Any]) -> Any:
    gamma, step_size, t_max = float(params["gamma"]), int(params["step_size"]), int(params["T_max"])
    if min(step_size, t_max) < 1:
        raise ValueError("step_size and T_max count epochs: 1 or more")
    match kind:
        case "StepLR":
            return lr_scheduler.StepLR(optimizer, step_size=step_size, gamma=gamma)
        case "CosineAnnealingLR":
            return lr_scheduler.CosineAnnealingLR(optimizer, T_max=t_max)
        case "ExponentialLR":
            return lr_scheduler.ExponentialLR(optimizer, gamma=gamma)
        case "ReduceLROnPlateau":
            return lr_scheduler.ReduceLROnPlateau(optimizer, factor=gamma)
        case "CosineAnnealingWarmRestarts":
            return lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=t_max)
        case "MultiStepLR":
            milestones = [step_size * times for times in range(1, _MILESTONES + 1)]
            return lr_scheduler.MultiStepLR(optimizer, milestones=milestones, gamma=gamma)
        case _:
            return one_cycle(optimizer, float(params["max_lr"]), int(params["total_steps"]))


class LRScheduler(Node):
    type = "LRScheduler"
    category = "Training"
    description = (
        "Changes the optimizer's learning rate while TrainingLoop trains: after every epoch, OneCycleLR after"
        " every step, over as many steps as the training has."
    )
    inputs = (Port(name="optimizer", type=DataType.OPTIMIZER, description="Whose rate to change"),)
    outputs = (Port(name="scheduler", type=DataType.ANY, description="For TrainingLoop's lr_scheduler"),)
    params = (
        Param(name="type", kind=ParamKind.SELECT, default="StepLR", options=TYPES, description="The curve"),
        Param(
            name="step_size",
            kind=ParamKind.INT,
            default=10,
            description="Epochs between drops; MultiStepLR drops after 1, 2, 3 and 4 times this",
            visible_when={"type": ["StepLR", "MultiStepLR"]},
        ),
        Param(
            name="gamma",
            kind=ParamKind.FLOAT,
            default=0.1,
            description="Factor of a drop; ExponentialLR applies it after every epoch",
            visible_when={"type": ["StepLR", "ExponentialLR", "ReduceLROnPlateau", "MultiStepLR"]},
        ),
        Param(
            name="T_max",
            kind=ParamKind.INT,
            default=50,
            description="Epochs of half a cosine; between restarts for the warm one",
            visible_when={"type": ["CosineAnnealingLR", "CosineAnnealingWarmRestarts"]},
        ),
        Param(
            name="max_lr",
            kind=ParamKind.FLOAT,
            default=0.01,
            description="Highest rate of the cycle",
            visible_when={"type": "OneCycleLR"},
        ),
        Param(
            name="total_steps",
            kind=ParamKind.INT,
            default=1000,
            description="Steps of the cycle outside of TrainingLoop, which counts its own",
            visible_when={"type": "OneCycleLR"},
        ),
    )
    cacheable = False

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        try:
            return {"scheduler": _build(params["type"], inputs["optimizer"], params)}
        except ValueError as problem:
            raise UnfitError(f"{params['type']} can't be built: {problem}") from problem
