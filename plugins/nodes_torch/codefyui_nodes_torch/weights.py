"""Nodes that hold weights: made on the CPU from the run's seed, then put on the run's device.

Values drawn on the CPU are the same on every device.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import nn
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Port

from .base import TorchNode, floating
from .steps import Step, traced


@contextmanager
def seeded(context: NodeContext, label: str) -> Iterator[None]:
    """Inside, torch's CPU generator draws from the run's seed for this node and ``label``; afterwards it is
    where it was. An unseeded run draws from it as it is.
    """
    seed = context.derive_seed(label)
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would seed the accelerators' generators too, and nothing puts those back.
        torch.default_generator.manual_seed(seed)
        yield


class WeightedNode(TorchNode):
    """One ``torch.nn`` layer from ``tensor`` to ``tensor``, in training mode.

    The weights take the dtype of a floating input; whole numbers come in as float32.
    """

    cacheable: ClassVar[bool] = False
    stateful: ClassVar[bool] = True
    inputs = (Port(name="tensor", type=DataType.TENSOR),)
    outputs = (Port(name="tensor", type=DataType.TENSOR),)

    @abstractmethod
    def build(self, params: Mapping[str, Any]) -> nn.Module:
        """The layer, with torch's own initialization."""

    def check(self, tensor: torch.Tensor, params: Mapping[str, Any]) -> torch.Tensor:
        """The input as the layer takes it.

        Raises: UnfitError, when the layer can't.
        """
        return floating(tensor)

    def steps(self, layer: nn.Module, tensor: torch.Tensor, output: torch.Tensor) -> Iterator[Step]:
        """The step trace, for the layers that have one."""
        yield from ()

    def layer(self, params: Mapping[str, Any], context: NodeContext) -> nn.Module:
        """The layer on the run's device."""
        try:
            with seeded(context, "weights"):
                layer = self.build(params)
        except (ValueError, RuntimeError, AssertionError) as error:
            raise self.unfit(f"no layer can be made from {dict(params)}: {error}") from error
        return layer.to(context.device)

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        tensor = self.check(self.tensor(inputs, "tensor", context), params)
        layer = self.layer(params, context)
        if tensor.is_floating_point():
            layer = layer.to(tensor.dtype)
        with self.fitting(tensor=tensor):
            output: torch.Tensor = layer(tensor)
        return traced({"tensor": output}, context, lambda: self.steps(layer, tensor, output))
