"""Builds a model from a drawing of its layers."""

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from typing_extensions import override

from codefyui_core.plugin import DataType, Node, NodeContext, Param, ParamKind, Port

from .devices import chosen_device
from .layer_graph import LayerGraph
from .randomness import own_randomness


def chain_text(layers: list[tuple[str, str, dict[str, Any] | None]]) -> str:
    """The ``layers`` text of a plain chain of (id, type, params)."""
    nodes: list[dict[str, Any]] = [{"id": "in", "type": "Input", "ports": [{"id": "p_x", "name": "x"}]}]
    nodes += [
        {"id": id_, "type": type_, **({"params": params} if params else {})} for id_, type_, params in layers
    ]
    nodes.append({"id": "out", "type": "Output", "ports": [{"id": "p_y", "name": "y"}]})
    edges: list[dict[str, str]] = []
    for number, (source, target) in enumerate(pairwise(nodes), start=1):
        edge = {"id": f"e{number}", "source": source["id"]}
        if source["type"] == "Input":
            edge["sourceHandle"] = "p_x"
        edge["target"] = target["id"]
        if target["type"] == "Output":
            edge["targetHandle"] = "p_y"
        edges.append(edge)
    return json.dumps({"version": 2, "nodes": nodes, "edges": edges}, separators=(",", ":"))


DEFAULT_LAYERS = chain_text(
    [
        ("c1", "Conv2d", {"in_channels": 1, "out_channels": 32, "kernel_size": 3, "padding": 1}),
        ("r1", "ReLU", None),
        ("p1", "MaxPool2d", {"kernel_size": 2, "stride": 2}),
        ("c2", "Conv2d", {"in_channels": 32, "out_channels": 64, "kernel_size": 3, "padding": 1}),
        ("r2", "ReLU", None),
        ("p2", "MaxPool2d", {"kernel_size": 2, "stride": 2}),
        ("f", "Flatten", None),
        ("l1", "Linear", {"in_features": 3136, "out_features": 128}),
        ("r3", "ReLU", None),
        ("l2", "Linear", {"in_features": 128, "out_features": 10}),
    ]
)


class SequentialModel(Node):
    type = "SequentialModel"
    category = "Training"
    description = (
        "A model drawn as a graph of layers, with branches and several inputs and outputs where wanted."
    )
    outputs = (Port(name="model", type=DataType.MODEL, description="The new model"),)
    params = (
        Param(
            name="layers",
            kind=ParamKind.STRING,
            default=DEFAULT_LAYERS,
            description="The drawing, as JSON text",
        ),
    )
    cacheable = False

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        with own_randomness(torch.device("cpu"), context.derive_seed("weights")):
            model = LayerGraph(params["layers"])
        count = sum(parameter.numel() for parameter in model.parameters())
        context.log(f"{len(list(model.layers.children()))} layers, {count:,} parameters")
        return {"model": model.to(chosen_device("auto", context))}
