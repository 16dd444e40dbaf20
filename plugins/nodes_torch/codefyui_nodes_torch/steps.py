"""Step traces: what a node did on its way, for the editor's step view. Made in verbose runs only."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from codefyui_core.plugin import NodeContext

Step = dict[str, Any]
STEPS = "__steps__"
"""The reserved result key."""


def step(
    name: str,
    description: str,
    scalars: Mapping[str, float] | None = None,
    **tensors: torch.Tensor,
) -> Step:
    """One step; tensors are cut off from the autograd graph."""
    return {
        "name": name,
        "description": description,
        "tensors": {key: value.detach() for key, value in tensors.items()},
        "scalars": dict(scalars or {}),
    }


def traced(
    outputs: Mapping[str, Any], context: NodeContext, steps: Callable[[], Iterable[Step]]
) -> dict[str, Any]:
    """``outputs``, with the steps beside them when the run is verbose and there are any."""
    if not context.verbose:
        return dict(outputs)
    with torch.no_grad():
        made = list(steps())
    return {**outputs, STEPS: made} if made else dict(outputs)
