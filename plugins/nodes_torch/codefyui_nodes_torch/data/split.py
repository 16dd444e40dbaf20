"""Rows to train on, and rows to test with."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port

from ..base import TorchNode


class TrainTestSplit(TorchNode):
    type = "TrainTestSplit"
    category = "Data"
    description = "Splits rows and their labels at random, the same way for the same seed."
    inputs = (
        Port(name="features", type=DataType.TENSOR, description="(rows, …)"),
        Port(name="labels", type=DataType.LIST, description="One for each row"),
    )
    outputs = (
        Port(name="x_train", type=DataType.TENSOR, description="float32"),
        Port(name="y_train", type=DataType.LIST, description="Their labels"),
        Port(name="x_test", type=DataType.TENSOR, description="float32"),
        Port(name="y_test", type=DataType.LIST, description="Their labels"),
    )
    params = (
        Param(
            name="test_size",
            kind=ParamKind.FLOAT,
            default=0.2,
            minimum=0.0,
            maximum=1.0,
            description="Share of the rows to test with, between 0 and 1",
        ),
        Param(name="seed", kind=ParamKind.INT, default=42, description="Of the draw"),
        Param(
            name="stratify",
            kind=ParamKind.BOOL,
            default=False,
            description="Both parts have the labels in the same proportions",
        ),
    )

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        features, given = self.tensor(inputs, "features", context), inputs["labels"]
        labels = given.tolist() if isinstance(given, torch.Tensor) else list(given)
        if not features.dim() or len(features) != len(labels):
            rows = len(features) if features.dim() else 0
            raise self.unfit(f"features has {rows} rows and labels {len(labels)}; each row needs one label")
        train, test = self._rows(labels, params)
        return {
            "x_train": features[torch.from_numpy(train).to(features.device)].float(),
            "y_train": [labels[row] for row in train],
            "x_test": features[torch.from_numpy(test).to(features.device)].float(),
            "y_test": [labels[row] for row in test],
        }

    def _rows(self, labels: list[Any], params: Mapping[str, Any]) -> tuple[Any, Any]:
        size = float(params["test_size"])
        if not 0 < size < 1:
            raise self.unfit(f"test_size must lie between 0 and 1, such as 0.2; it is {size:g}")
        try:
            train, test = train_test_split(
                np.arange(len(labels)),
                test_size=size,
                random_state=int(params["seed"]),
                stratify=[str(label) for label in labels] if params["stratify"] else None,
            )
        except ValueError as problem:
            raise self.unfit(f"these {len(labels)} rows can't be split so: {problem}") from problem
        return train, test
