"""The presets expand and plan with the installed nodes, and compute what their names say."""

import pytest
import torch

from codefyui_core.graph import Definitions, Document, expand, plan, validate
from codefyui_core.loading import load, load_nodes
from codefyui_core.testing.node_context import RecordingContext
from codefyui_nodes_torch.plugin import TorchCatalog


@pytest.fixture(scope="module")
def loaded():
    found = load_nodes(load(plane=None, only=("builtin", "nodes_torch")))
    assert [problem for problem in found.problems if "codefyui_nodes_torch" in problem.source] == []
    return found.nodes


@pytest.fixture(scope="module")
def definitions(loaded):
    presets = [preset.document for preset in TorchCatalog().presets()]
    return Definitions.of([node.definition for node in loaded.values()], presets)


def document(nodes, wires):
    return Document.parse(
        {
            "nodes": [
                {"id": "go", "type": "Start", "data": {"params": {}}},
                *({"id": name, "type": kind, "data": {"params": params}} for name, kind, params in nodes),
            ],
            "edges": [
                {
                    "id": "trigger",
                    "source": "go",
                    "target": nodes[0][0],
                    "sourceHandle": "trigger",
                    "targetHandle": "__trigger",
                    "type": "trigger",
                },
                *(
                    {"id": str(n), "source": a, "sourceHandle": b, "target": c, "targetHandle": d}
                    for n, (a, b, c, d) in enumerate(wires)
                ),
            ],
        }
    )


def outputs(graph, loaded, definitions, root):
    assert validate(graph, definitions) == ()
    planned = plan(expand(graph, definitions), definitions)
    results = {}
    for level in planned.levels:
        for name in level:
            node = planned.nodes[name]
            inputs = {port: results[source.node_id][source.port] for port, source in node.inputs.items()}
            context = RecordingContext(root=root, node_id=name, seed=1)
            results[name] = loaded[node.type].node().execute(inputs, node.params, context)
    return results


def test_the_cnn_quarters_an_image_and_has_64_channels(loaded, definitions, tmp_path):
    graph = document(
        [
            ("image", "TensorCreate", {"shape": "2,1,28,28", "fill": "rand"}),
            ("cnn", "preset:Simple CNN Classifier", {}),
        ],
        [("image", "tensor", "cnn", "tensor")],
    )
    out = outputs(graph, loaded, definitions, tmp_path)["cnn__pool2"]["tensor"]
    assert out.shape == (2, 64, 7, 7)
    assert torch.isfinite(out).all()


def test_the_pipeline_fits_a_model_and_trains_on_the_device_of_the_run(definitions):
    graph = document(
        [("model", "SequentialModel", {}), ("train", "preset:Training Pipeline", {})],
        [("model", "model", "train", "model"), ("model", "model", "train", "model_for_opt")],
    )
    assert validate(graph, definitions) == ()
    planned = plan(expand(graph, definitions), definitions)
    loop = planned.nodes["train__train_loop"]
    assert set(loop.inputs) == {"model", "dataloader", "optimizer", "loss_fn"}
    assert loop.params["device"] == "auto"
