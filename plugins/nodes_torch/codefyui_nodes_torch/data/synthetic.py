"""Point clouds with labels, from scikit-learn's generators."""

from collections.abc import Mapping
from typing import Any

import torch
from sklearn import datasets
from typing_extensions import override

from codefyui_core.plugin import DataType, NodeContext, Param, ParamKind, Port

from ..base import TorchNode


class SyntheticDataset(TorchNode):
    type = "SyntheticDataset"
    category = "Data"
    description = "Points in the plane with labels: circles, moons, blobs or two overlapping classes."
    outputs = (
        Port(name="tensor", type=DataType.TENSOR, description="(points, 2), float32"),
        Port(name="labels", type=DataType.LIST, description="Texts"),
        Port(name="columns", type=DataType.LIST, description="x0, x1"),
    )
    params = (
        Param(
            name="kind",
            kind=ParamKind.SELECT,
            default="circles",
            options=("circles", "moons", "blobs", "classification"),
            description="The figure",
        ),
        Param(name="n_samples", kind=ParamKind.INT, default=200, minimum=10, description="Points"),
        Param(
            name="noise",
            kind=ParamKind.FLOAT,
            default=0.1,
            minimum=0.0,
            description="Spread of the points; for classification the share of wrong labels, up to 1",
        ),
        Param(
            name="factor",
            kind=ParamKind.FLOAT,
            default=0.5,
            minimum=0.0,
            description="Inner radius of the circles, as a share of the outer one",
            visible_when={"kind": "circles"},
        ),
        Param(
            name="centers",
            kind=ParamKind.INT,
            default=3,
            minimum=2,
            description="Number of blobs",
            visible_when={"kind": "blobs"},
        ),
        Param(name="seed", kind=ParamKind.INT, default=42, description="Of the points"),
    )

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        points, labels = self._made(params)
        tensor = torch.tensor(points, dtype=torch.float32, device=context.device)
        return {
            "tensor": tensor,
            "labels": [str(label) for label in labels.tolist()],
            "columns": ["x0", "x1"],
        }

    def _made(self, params: Mapping[str, Any]) -> tuple[Any, Any]:
        count, noise, seed = int(params["n_samples"]), float(params["noise"]), int(params["seed"])
        match params["kind"]:
            case "circles":
                factor = min(max(float(params["factor"]), 0.01), 0.99)
                made = datasets.make_circles(count, noise=noise, factor=factor, random_state=seed)
            case "moons":
                made = datasets.make_moons(count, noise=noise, random_state=seed)
            case "blobs":
                made = datasets.make_blobs(
                    count,
                    n_features=2,
                    centers=int(params["centers"]),
                    cluster_std=max(0.1, 5 * noise),
                    random_state=seed,
                )
            case _:
                if noise > 1:
                    raise self.unfit(
                        f"noise is the share of wrong labels here, so at most 1; it is {noise:g}"
                    )
                made = datasets.make_classification(
                    count,
                    n_features=2,
                    n_informative=2,
                    n_redundant=0,
                    n_clusters_per_class=1,
                    flip_y=noise,
                    random_state=seed,
                )
        return made[0], made[1]
