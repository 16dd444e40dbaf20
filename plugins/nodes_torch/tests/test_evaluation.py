"""EvaluateModel and Inference: right numbers, and a model that stays as it was."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from codefyui_core.errors import CodefyError
from codefyui_core.testing.node_context import RecordingContext, execute
from codefyui_nodes_torch.io.inference import Inference
from codefyui_nodes_torch.training.backward_once import BackwardOnce
from codefyui_nodes_torch.training.evaluate import EvaluateModel
from codefyui_nodes_torch.training.layer_graph import LayerGraph
from codefyui_nodes_torch.training.sequential import chain_text


def _network():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))


def _items(labels=None):
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(2))
    return TensorDataset(x, torch.arange(50) % 3 if labels is None else labels)


@pytest.mark.parametrize("batch_size", [1, 7, 50, 256])
def test_accuracy_is_the_share_of_hits(batch_size, tmp_path):
    model, items = _network(), _items()
    context = RecordingContext(root=tmp_path)
    counted = execute(EvaluateModel, {"model": model, "dataset": items}, context, batch_size=batch_size)
    guesses = model.eval()(items.tensors[0]).argmax(1)
    correct = int((guesses == items.tensors[1]).sum())
    assert counted == {"accuracy": correct / 50, "correct": correct, "total": 50}
    assert context.metrics == [("eval_accuracy", correct / 50, None)]


def test_labels_of_shape_b_1_do_not_broadcast(tmp_path):
    model = _network()
    flat = execute(EvaluateModel, {"model": model, "dataset": _items()}, root=tmp_path)
    column = _items((torch.arange(50) % 3).unsqueeze(1).float())
    assert execute(EvaluateModel, {"model": model, "dataset": column}, root=tmp_path) == flat


def test_masks_are_counted_by_pixels(tmp_path):
    images, masks = torch.randn(5, 3, 4, 4), torch.randint(0, 3, (5, 4, 4))
    counted = execute(
        EvaluateModel, {"model": nn.Identity(), "dataset": TensorDataset(images, masks)}, root=tmp_path
    )
    assert counted["total"] == 80
    assert counted["correct"] == int((images.argmax(1) == masks).sum())


def test_fractions_and_flat_answers_are_refused(tmp_path):
    with pytest.raises(CodefyError, match="these labels are fractions"):
        execute(EvaluateModel, {"model": _network(), "dataset": _items(torch.rand(50))}, root=tmp_path)
    flat = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))
    with pytest.raises(CodefyError, match=r"it got \(50,\)"):
        execute(EvaluateModel, {"model": flat, "dataset": _items()}, root=tmp_path)


def test_an_empty_data_set_has_accuracy_0(tmp_path):
    empty = TensorDataset(torch.zeros(0, 4), torch.zeros(0))
    counted = execute(EvaluateModel, {"model": _network(), "dataset": empty}, root=tmp_path)
    assert counted == {"accuracy": 0.0, "correct": 0, "total": 0}


def test_a_stop_ends_it_between_batches(tmp_path):
    context = RecordingContext(root=tmp_path, stop_after=2)
    counted = execute(EvaluateModel, {"model": _network(), "dataset": _items()}, context, batch_size=5)
    assert counted["total"] == 10
    assert counted["__interrupted__"] is True
    assert context.metrics == []


def test_the_model_keeps_modes_and_statistics(tmp_path):
    model = _network()
    model[1].eval()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    execute(EvaluateModel, {"model": model, "dataset": _items()}, root=tmp_path)
    answer = execute(Inference, {"model": model, "input": torch.randn(3, 4)}, root=tmp_path)
    assert answer["model"] is model
    assert [module.training for module in model] == [True, False, True, True]
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_inference_is_the_model_in_evaluation_mode(tmp_path):
    model, x = _network(), torch.randn(6, 4)
    output = execute(Inference, {"model": model, "input": x}, root=tmp_path)["output"]
    assert torch.equal(output, model.eval()(x))
    assert not output.requires_grad
    # Later nodes may use it in a graph with gradients.
    (output * torch.ones(1, requires_grad=True)).sum().backward()


def test_inference_explains_what_it_can_not_ask(tmp_path):
    with pytest.raises(CodefyError, match="can't be computed with"):
        execute(Inference, {"model": nn.Linear(4, 1), "input": torch.zeros(2, 3)}, root=tmp_path)
    with pytest.raises(CodefyError, match="torch module"):
        execute(Inference, {"model": "m", "input": torch.zeros(1)}, root=tmp_path)
    with pytest.raises(CodefyError, match="one tensor"):
        execute(Inference, {"model": nn.LSTM(2, 2), "input": torch.zeros(1, 2)}, root=tmp_path)
    text = chain_text([("r", "ReLU", None)]).replace(
        '{"id":"p_y","name":"y"}', '{"id":"p_y","name":"y"},{"id":"p_z","name":"z"}'
    )
    several = LayerGraph(text[:-2] + ',{"id":"e9","source":"r","target":"out","targetHandle":"p_z"}]}')
    with pytest.raises(CodefyError, match="outputs y, z"):
        execute(Inference, {"model": several, "input": torch.zeros(1)}, root=tmp_path)


def test_a_device_that_is_not_there_becomes_the_cpu_and_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    context = RecordingContext(root=tmp_path)
    execute(Inference, {"model": nn.Identity(), "input": torch.zeros(1)}, context, device="cuda")
    assert context.lines[0] == "cuda isn't available on this machine; computing on the CPU"


def test_backward_once_passes_its_tensor_on(tmp_path):
    x = torch.randn(3, requires_grad=True)
    assert execute(BackwardOnce, {"tensor": x}, root=tmp_path)["tensor"] is x
    assert BackwardOnce.define("").cacheable is False
