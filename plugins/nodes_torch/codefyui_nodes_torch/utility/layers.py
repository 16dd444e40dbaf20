"""A dense layer and a table of vectors."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from typing_extensions import override

from codefyui_core.plugin import Param, ParamKind

from ..base import floating, shape_of
from ..steps import Step, step
from ..weights import WeightedNode


class Linear(WeightedNode):
    type = "Linear"
    category = "Utility"
    description = "x · Wᵀ + b on the last axis."
    params = (
        Param(
            name="in_features", kind=ParamKind.INT, default=512, description="Size of the input's last axis"
        ),
        Param(
            name="out_features", kind=ParamKind.INT, default=10, description="Size of the output's last axis"
        ),
    )

    @override
    def build(self, params: Mapping[str, Any]) -> nn.Module:
        return nn.Linear(params["in_features"], params["out_features"])

    @override
    def check(self, tensor: torch.Tensor, params: Mapping[str, Any]) -> torch.Tensor:
        self.check_positive(params, "in_features", "out_features")
        self.check_axis("tensor", tensor, -1, params["in_features"], "in_features")
        return floating(tensor)

    @override
    def steps(self, layer: nn.Module, tensor: torch.Tensor, output: torch.Tensor) -> Iterator[Step]:
        assert isinstance(layer, nn.Linear)
        yield step("input", "The input", input=tensor)
        yield step("weight_matrix", "One row for each output feature", weight=layer.weight)
        yield step("bias_vector", "Added to every output", bias=layer.bias)
        yield step("linear_output", "x · Wᵀ + b", output=output)


class Embedding(WeightedNode):
    """Indices of any shape (*) to vectors (*, embedding_dim).

    Indices are checked against the table first: on a CUDA device one that is out of range would end the
    whole process's use of it.
    """

    type = "Embedding"
    category = "Utility"
    description = "Looks up a vector for each whole number."
    params = (
        Param(name="num_embeddings", kind=ParamKind.INT, default=10000, description="Rows of the table"),
        Param(name="embedding_dim", kind=ParamKind.INT, default=256, description="Size of a vector"),
        Param(
            name="padding_idx",
            kind=ParamKind.INT,
            default=-1,
            description="A row that is zero and never learns; negative: none",
        ),
    )

    @override
    def build(self, params: Mapping[str, Any]) -> nn.Module:
        padding = params["padding_idx"]
        return nn.Embedding(
            params["num_embeddings"], params["embedding_dim"], padding_idx=padding if padding >= 0 else None
        )

    @override
    def check(self, tensor: torch.Tensor, params: Mapping[str, Any]) -> torch.Tensor:
        self.check_positive(params, "num_embeddings", "embedding_dim")
        indices = tensor.to(torch.int64)
        if tensor.is_complex() or not torch.equal(indices.to(tensor.dtype), tensor):
            raise self.unfit(f"tensor needs whole numbers; it got {shape_of(tensor)} with fractions")
        rows = params["num_embeddings"]
        if indices.numel() and not 0 <= int(indices.min()) <= int(indices.max()) < rows:
            raise self.unfit(
                f"tensor holds indices from {int(indices.min())} to {int(indices.max())}; "
                f"num_embeddings {rows} allows 0 to {rows - 1}"
            )
        return indices

    @override
    def steps(self, layer: nn.Module, tensor: torch.Tensor, output: torch.Tensor) -> Iterator[Step]:
        assert isinstance(layer, nn.Embedding)
        yield step("indices", "The input", indices=tensor)
        yield step("embedding_table", "One row for each index", table=layer.weight)
        yield step("lookup", "The rows that the indices name", output=output)
