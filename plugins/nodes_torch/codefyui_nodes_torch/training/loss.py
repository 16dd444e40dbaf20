"""Loss functions, and what each expects of outputs and targets."""

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import kl_div
from typing_extensions import override

from codefyui_core.plugin import DataType, Node, NodeContext, Param, ParamKind, Port

from ..base import UnfitError


class KLDivLoss(nn.KLDivLoss):
    """torch's default, the mean over all elements, without its warning at every call."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002 - torch's own name
        return kl_div(input, target, reduction="none", log_target=self.log_target).mean()


CLASSES: Mapping[str, type[nn.Module]] = MappingProxyType(
    {
        "CrossEntropyLoss": nn.CrossEntropyLoss,
        "MSELoss": nn.MSELoss,
        "BCEWithLogitsLoss": nn.BCEWithLogitsLoss,
        "L1Loss": nn.L1Loss,
        "SmoothL1Loss": nn.SmoothL1Loss,
        "NLLLoss": nn.NLLLoss,
        "KLDivLoss": KLDivLoss,
        "HuberLoss": nn.HuberLoss,
        "BCELoss": nn.BCELoss,
        "MarginRankingLoss": nn.MarginRankingLoss,
        "CosineEmbeddingLoss": nn.CosineEmbeddingLoss,
    }
)


class Target(Enum):
    """What a loss compares an output with."""

    CLASSES = "classes"
    """Class numbers, the classes on axis 1 of the output; or probabilities in the output's shape."""
    BINARY_LOGITS = "binary logits"
    BINARY = "binary"
    SAME_SHAPE = "same shape"
    ANYTHING = "anything"
    """A loss that isn't torch's: passed on as it is."""


_TARGETS: tuple[tuple[type[nn.Module], Target], ...] = (
    (nn.CrossEntropyLoss, Target.CLASSES),
    (nn.NLLLoss, Target.CLASSES),
    (nn.BCEWithLogitsLoss, Target.BINARY_LOGITS),
    (nn.BCELoss, Target.BINARY),
    (nn.MSELoss, Target.SAME_SHAPE),
    (nn.L1Loss, Target.SAME_SHAPE),
    (nn.SmoothL1Loss, Target.SAME_SHAPE),
    (nn.HuberLoss, Target.SAME_SHAPE),
    (nn.KLDivLoss, Target.SAME_SHAPE),
)

_SEVERAL_INPUTS = (nn.MarginRankingLoss, nn.CosineEmbeddingLoss, nn.TripletMarginLoss)


def target_of(loss_fn: Any) -> Target:
    """What ``loss_fn`` expects.

    Raises: UnfitError for a loss that takes more than an output and a target.
    """
    if isinstance(loss_fn, _SEVERAL_INPUTS):
        raise UnfitError(
            f"{type(loss_fn).__name__} compares two outputs and a sign, which a loader's (input, target) pairs"
            " don't have; choose a loss of one output and one target, such as CrossEntropyLoss or MSELoss."
        )
    return next((kind for known, kind in _TARGETS if isinstance(loss_fn, known)), Target.ANYTHING)


def fitted(output: Tensor, target: Any, kind: Target) -> Any:
    """The target in the shape and dtype that its loss wants beside ``output``.

    Targets that differ by axes of length 1 are reshaped, so that (B,) beside (B,1) never broadcasts to (B,B).

    Raises: UnfitError naming both shapes when they can't belong together.
    """
    if kind is Target.ANYTHING or not isinstance(target, Tensor):
        return target
    if kind is Target.CLASSES:
        return _class_numbers(output, target)
    if not _same_but_ones(target.shape, output.shape):
        raise UnfitError(
            f"The model answers {tuple(output.shape)} and the targets are {tuple(target.shape)};"
            " this loss compares equal shapes."
        )
    return target.reshape(output.shape).to(output.dtype)


def _class_numbers(output: Tensor, target: Tensor) -> Tensor:
    if target.is_floating_point() and target.shape == output.shape:
        return target.to(output.dtype)
    wanted = output.shape[:1] + output.shape[2:]
    if not _same_but_ones(target.shape, wanted):
        raise UnfitError(
            f"The model answers {tuple(output.shape)}, so the class numbers should be {tuple(wanted)};"
            f" they are {tuple(target.shape)}."
        )
    return target.reshape(wanted).long()


def _same_but_ones(one: Sequence[int], other: Sequence[int]) -> bool:
    return [size for size in one if size != 1] == [size for size in other if size != 1]


class Loss(Node):
    type = "Loss"
    category = "Training"
    description = "A loss function with torch's default settings (the mean over the batch)."
    outputs = (Port(name="loss_fn", type=DataType.LOSS_FN, description="The loss"),)
    params = (
        Param(
            name="type",
            kind=ParamKind.SELECT,
            default="CrossEntropyLoss",
            options=tuple(CLASSES),
            description="CrossEntropyLoss for classes from raw scores, MSELoss for numbers",
        ),
    )

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        return {"loss_fn": CLASSES[params["type"]]()}
