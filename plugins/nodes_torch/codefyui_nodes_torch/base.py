"""What every torch node shares: reading its ports, and saying plainly what doesn't fit."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from codefyui_core.plugin import CodefyError, Node, NodeContext

_NOT_THE_SHAPES = re.compile(r"CUDA error|HIP error|memory", re.IGNORECASE)


class UnfitError(CodefyError, ValueError):
    """An input or a param that the node can't compute with. The message names it and what it needs."""

    default_code = "node.unfit"


def shape_of(value: object) -> str:
    """How an error message shows what came: a tensor's shape and dtype, else the type."""
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    return "nothing" if value is None else type(value).__name__


def floating(tensor: torch.Tensor) -> torch.Tensor:
    """Whole numbers and bools as float32, for operations that are defined on real numbers only."""
    if tensor.is_floating_point() or tensor.is_complex():
        return tensor
    return tensor.to(torch.get_default_dtype())


class TorchNode(Node):
    """A node that works on tensors."""

    def unfit(self, what: str) -> UnfitError:
        """The error to raise; ``what`` begins with the port or the param."""
        return UnfitError(f"{self.type}: {what}")

    def tensor(self, inputs: Mapping[str, Any], port: str, context: NodeContext) -> torch.Tensor:
        """The tensor at ``port``. Numbers, arrays and even lists of numbers become one on the run's device.

        Raises: UnfitError.
        """
        value = inputs.get(port)
        if isinstance(value, torch.Tensor):
            return value
        if value is None or isinstance(value, str | bytes | Mapping):
            raise self.unfit(f"{port} needs a tensor; it got {shape_of(value)}")
        try:
            return torch.as_tensor(value, device=context.device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise self.unfit(
                f"{port} needs a tensor or numbers; it got {shape_of(value)} ({error})"
            ) from error

    def check_rank(self, port: str, value: torch.Tensor, *forms: str) -> None:
        """Refuse a tensor whose number of axes is that of none of ``forms``, such as ``N, C, H, W``."""
        if value.dim() not in {form.count(",") + 1 for form in forms}:
            wanted = " or ".join(f"({form})" for form in forms)
            raise self.unfit(f"{port} needs the shape {wanted}; it got {shape_of(value)}")

    def check_axis(self, port: str, value: torch.Tensor, axis: int, size: int, param: str) -> None:
        """Refuse a tensor whose ``axis`` differs from the size that ``param`` states."""
        if not -value.dim() <= axis < value.dim() or value.shape[axis] != size:
            raise self.unfit(
                f"{port} needs {size} on axis {axis}, as {param} says; it got {shape_of(value)}. "
                f"Change {param}, or what is wired to {port}"
            )

    def check_positive(self, params: Mapping[str, Any], *names: str) -> None:
        """Refuse params below 1, where the declaration has no bound."""
        for name in names:
            if params[name] < 1:
                raise self.unfit(f"{name} must be at least 1; it is {params[name]}")

    @contextmanager
    def fitting(self, **tensors: object) -> Iterator[None]:
        """Turn torch's complaint about shapes or dtypes into one that names the ports and what came.

        Running out of memory and a device's own failure are no fault of the shapes; they pass.
        """
        try:
            yield
        except (RuntimeError, IndexError, TypeError) as error:
            if isinstance(error, UnfitError) or _NOT_THE_SHAPES.search(str(error)):
                raise
            came = ", ".join(f"{port} {shape_of(value)}" for port, value in tensors.items())
            raise self.unfit(f"{came} can't be computed with: {str(error).splitlines()[0]}") from error
