"""The first example that a newcomer runs: it has to train well, fast, and the same way every time."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from codefyui_core.plugin import Node
from codefyui_core.testing.node_context import RecordingContext, execute
from codefyui_nodes_torch.data.dataset import Dataset
from codefyui_nodes_torch.data.loader import DataLoader
from codefyui_nodes_torch.io.model_saver import ModelSaver
from codefyui_nodes_torch.training.evaluate import EvaluateModel
from codefyui_nodes_torch.training.loss import Loss
from codefyui_nodes_torch.training.optimizer import Optimizer
from codefyui_nodes_torch.training.sequential import SequentialModel
from codefyui_nodes_torch.training.training_loop import TrainingLoop

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits-cnn.graph.json"
NODES: Mapping[str, type[Node]] = {
    node.type: node
    for node in (
        Dataset,
        DataLoader,
        SequentialModel,
        Optimizer,
        Loss,
        TrainingLoop,
        EvaluateModel,
        ModelSaver,
    )
}


def _run(document: Mapping[str, Any], root: Path) -> tuple[dict[str, Mapping[str, Any]], RecordingContext]:
    """Execute the graph's nodes in the order in which they are written, which is one that works."""
    results: dict[str, Mapping[str, Any]] = {}
    training = RecordingContext(root=root, node_id="training", seed=document["settings"]["seed"])
    for node in document["nodes"]:
        if node["type"] not in NODES:
            continue
        wires = [
            edge for edge in document["edges"] if edge["target"] == node["id"] and edge["type"] == "data"
        ]
        inputs = {edge["targetHandle"]: results[edge["source"]][edge["sourceHandle"]] for edge in wires}
        context = (
            training
            if node["id"] == "training"
            else RecordingContext(root=root, node_id=node["id"], seed=document["settings"]["seed"])
        )
        results[node["id"]] = execute(NODES[node["type"]], inputs, context, **node["data"]["params"])
    return results, training


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return json.loads(EXAMPLE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def trained(document, tmp_path_factory):
    return _run(document, tmp_path_factory.mktemp("digits"))


def test_it_recognizes_nearly_all_digits(trained):
    results, training = trained
    last = [value for name, value, _ in training.metrics if name == "val_accuracy"][-1]
    assert last > 0.96
    assert results["evaluate"]["accuracy"] == pytest.approx(last)
    assert results["evaluate"]["total"] == 360


def test_it_keeps_a_checkpoint_every_five_epochs_and_the_weights(trained):
    results, training = trained
    kept = [path.name for kind, path, _ in training.artifacts if kind == "checkpoint"]
    assert kept == [f"{training.run_id}-training-e{epoch}.pt" for epoch in (5, 10, 15, 20)]
    saved = torch.load(results["save"]["path"], weights_only=True)
    for name, weight in results["training"]["model"].state_dict().items():
        assert torch.equal(saved[name], weight)


def test_a_second_run_takes_the_same_steps(document, trained, tmp_path):
    again = json.loads(json.dumps(document))
    loop = next(node for node in again["nodes"] if node["id"] == "training")
    loop["data"]["params"]["epochs"] = 2
    results, _ = _run(again, tmp_path)
    assert torch.equal(results["training"]["losses"], trained[0]["training"]["losses"][:2])


def test_everything_in_it_is_started_or_fed(document):
    started = {edge["target"] for edge in document["edges"] if edge["type"] == "trigger"}
    fed = {edge["target"] for edge in document["edges"] if edge["type"] == "data"}
    assert {node["id"] for node in document["nodes"] if node["type"] != "Start"} == started | fed


def test_its_params_and_ports_are_those_of_the_nodes(document):
    kinds = {node["id"]: NODES[node["type"]] for node in document["nodes"] if node["type"] in NODES}
    for node in document["nodes"]:
        if node["id"] in kinds:
            declared = {param.name for param in kinds[node["id"]].params}
            assert set(node["data"]["params"]) <= declared, node["id"]
    for edge in document["edges"]:
        if edge["type"] == "data":
            assert edge["sourceHandle"] in {port.name for port in kinds[edge["source"]].outputs}
        if edge["type"] == "data" and edge["target"] in kinds:
            assert edge["targetHandle"] in {port.name for port in kinds[edge["target"]].inputs}
