"""The layers that a drawing may hold, by their type names.

Params go to the torch class as keyword arguments, so torch's own defaults and extras (``bias``,
``dilation``, ``batch_first``) work. Activations are never in place: a branch keeps its values.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .drawing import MERGE_ARITY, Layer, bad


class FirstOutput(nn.Module):
    """The output sequence of a recurrent layer, without its last state."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.inner(x)[0]
        return output


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence (B,S,E) with itself, without a mask."""

    def __init__(self, embed_dim: int, num_heads: int, **more: Any) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(embed_dim, num_heads, **{"batch_first": True, **more})

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.inner(x, x, x, need_weights=False)[0]
        return output


class Encoder(nn.Module):
    """A transformer encoder over (B,S,E), without a mask."""

    def __init__(self, d_model: int, nhead: int, num_layers: int = 1, **more: Any) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(d_model, nhead, **{"batch_first": True, **more})
        self.inner = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.inner(x)
        return output


class Decoder(nn.Module):
    """A transformer decoder over (B,S,E) whose input is its memory too, without a causal mask."""

    def __init__(self, d_model: int, nhead: int, num_layers: int = 1, **more: Any) -> None:
        super().__init__()
        layer = nn.TransformerDecoderLayer(d_model, nhead, **{"batch_first": True, **more})
        self.inner = nn.TransformerDecoder(layer, num_layers)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.inner(x, x)
        return output


class Reshape(nn.Module):
    """A new shape behind the batch axis, written as ``2,-1``."""

    def __init__(self, shape: str) -> None:
        super().__init__()
        self.shape = tuple(int(size) for size in str(shape).split(",") if size.strip())

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], *self.shape)


class SelectIndex(nn.Module):
    """One index of an axis, which goes: a class token, the last step."""

    def __init__(self, dim: int = 1, index: int = 0) -> None:
        super().__init__()
        self.dim, self.index = dim, index

    def forward(self, x: Tensor) -> Tensor:
        return x.select(self.dim, self.index)


class Merge(nn.Module):
    """Joins several tensors into one, in the order of their wires."""

    def __init__(self, kind: str, dim: int = 1) -> None:
        super().__init__()
        self.kind, self.dim = kind, dim

    def forward(self, *parts: Tensor) -> Tensor:
        match self.kind:
            case "Concat":
                return torch.cat(parts, dim=self.dim)
            case "Stack":
                return torch.stack(parts, dim=self.dim)
            case "Mean":
                return torch.stack(parts).mean(dim=0)
            case _:
                return self._folded(parts)

    def _folded(self, parts: tuple[Tensor, ...]) -> Tensor:
        total = parts[0]
        for part in parts[1:]:
            match self.kind:
                case "Add":
                    total = total + part
                case "Subtract":
                    total = total - part
                case _:
                    total = total * part
        return total


def _softmax(dim: int = -1) -> nn.Module:
    return nn.Softmax(dim=dim)


def _lstm(**params: Any) -> nn.Module:
    return FirstOutput(nn.LSTM(**params))


def _gru(**params: Any) -> nn.Module:
    return FirstOutput(nn.GRU(**params))


FACTORIES: Mapping[str, Callable[..., nn.Module]] = {
    "Conv1d": nn.Conv1d,
    "Conv2d": nn.Conv2d,
    "ConvTranspose2d": nn.ConvTranspose2d,
    "BatchNorm1d": nn.BatchNorm1d,
    "BatchNorm2d": nn.BatchNorm2d,
    "InstanceNorm2d": nn.InstanceNorm2d,
    "LayerNorm": nn.LayerNorm,
    "GroupNorm": nn.GroupNorm,
    "MaxPool2d": nn.MaxPool2d,
    "AvgPool2d": nn.AvgPool2d,
    "AdaptiveAvgPool2d": nn.AdaptiveAvgPool2d,
    "Dropout": nn.Dropout,
    "Linear": nn.Linear,
    "Embedding": nn.Embedding,
    "Flatten": nn.Flatten,
    "Reshape": Reshape,
    "SelectIndex": SelectIndex,
    "TransformerEncoder": Encoder,
    "TransformerDecoder": Decoder,
    "LSTM": _lstm,
    "GRU": _gru,
    "MultiHeadAttention": SelfAttention,
    "ReLU": nn.ReLU,
    "LeakyReLU": nn.LeakyReLU,
    "ELU": nn.ELU,
    "SiLU": nn.SiLU,
    "Mish": nn.Mish,
    "SELU": nn.SELU,
    "Hardswish": nn.Hardswish,
    "GELU": nn.GELU,
    "Sigmoid": nn.Sigmoid,
    "Tanh": nn.Tanh,
    "PReLU": nn.PReLU,
    "Softmax": _softmax,
}


def build_layer(layer: Layer) -> nn.Module:
    """The module of one layer, with torch's default initial weights.

    Raises: CodefyError naming the layer, for an unknown type or params that torch refuses.
    """
    params = {name: value for name, value in layer.params.items() if name != "inplace"}
    try:
        if layer.type in MERGE_ARITY:
            return Merge(layer.type, **params)
        if layer.type not in FACTORIES:
            raise bad(f"{layer.id} has the unknown type {layer.type}")
        return FACTORIES[layer.type](**params)
    except (TypeError, ValueError, AssertionError, RuntimeError) as problem:
        raise bad(f"{layer.type} {layer.id} can't be built: {problem}") from problem
