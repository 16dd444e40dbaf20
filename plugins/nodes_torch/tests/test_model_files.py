"""Models and checkpoints on disk: what is written comes back, and nothing in a file is ever run."""

import contextlib
import os
import pickle

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn

from codefyui_core.errors import CodefyError
from codefyui_core.plugin import Family, FileRole
from codefyui_core.testing.node_context import RecordingContext, execute
from codefyui_nodes_torch.io.checkpoint_loader import CheckpointLoader
from codefyui_nodes_torch.io.checkpoint_saver import CheckpointSaver
from codefyui_nodes_torch.io.model_loader import ModelLoader
from codefyui_nodes_torch.io.model_saver import ModelSaver
from codefyui_nodes_torch.io.whole_file import write_whole
from codefyui_nodes_torch.training.layer_graph import LayerGraph
from codefyui_nodes_torch.training.sequential import chain_text

TEXT = chain_text([("a", "Linear", {"in_features": 2, "out_features": 3}), ("r", "ReLU", None)])


@pytest.fixture
def context(tmp_path):
    return RecordingContext(root=tmp_path)


def same(one, other):
    mine, theirs = one.state_dict(), other.state_dict()
    return list(mine) == list(theirs) and all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize(
    ("name", "format_", "written"),
    [
        ("w.pt", "pytorch", "w.pt"),
        ("deep/er/w.pt", "pytorch", "deep/er/w.pt"),
        ("w.pt", "safetensors", "w.safetensors"),
    ],
)
def test_weights_come_back(name, format_, written, context):
    model, other = LayerGraph(TEXT), LayerGraph(TEXT)
    saved = execute(ModelSaver, {"model": model}, context, path=name, format=format_)
    assert saved["path"] == str(context.root / "models" / written)
    assert saved["model"] is model
    loaded = execute(ModelLoader, {"model": other}, context, path=written)
    assert loaded["model"] is other
    assert same(model, other)
    assert context.artifacts[0][:2] == ("output", context.root / "models" / written)


def test_a_full_model_comes_back_without_a_model_wired(context):
    model = LayerGraph(TEXT)
    execute(ModelSaver, {"model": model}, context, path="full.pt", save_mode="full_model")
    loaded = execute(ModelLoader, {}, context, path="full.pt", load_mode="full_model")["model"]
    assert same(model, loaded)
    x = torch.randn(4, 2)
    assert torch.equal(loaded(x), model(x))
    filled = execute(ModelLoader, {"model": LayerGraph(TEXT)}, context, path="full.pt")["model"]
    assert same(filled, model)


def test_full_models_of_other_modules_and_in_safetensors_are_refused(context):
    with pytest.raises(CodefyError, match="SequentialModel only"):
        execute(ModelSaver, {"model": nn.Linear(1, 1)}, context, save_mode="full_model")
    with pytest.raises(CodefyError, match="weights alone"):
        execute(
            ModelSaver, {"model": LayerGraph(TEXT)}, context, save_mode="full_model", format="safetensors"
        )
    assert not list(context.root.rglob("*.pt"))


def test_tied_and_transposed_weights_can_be_saved_as_safetensors(context):
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    model[0].bias = nn.Parameter(torch.randn(3, 2).t()[0])
    path = execute(ModelSaver, {"model": model}, context, format="safetensors")["path"]
    assert torch.equal(load_file(path)["1.weight"], model[0].weight)


class _Trap:
    def __reduce__(self):
        return os.mkdir, ("trapped",)


@pytest.mark.parametrize("load_mode", ["state_dict", "full_model"])
@pytest.mark.parametrize("form", ["zip", "pickle"])
def test_a_file_that_wants_to_run_code_is_refused_and_does_not(load_mode, form, context, monkeypatch):
    monkeypatch.chdir(context.root)
    path = context.output_file(Family.MODELS, "evil.pt")
    if form == "zip":
        torch.save({"model_state_dict": {}, "optimizer_state_dict": _Trap()}, path)
    else:
        content = {"model_state_dict": {}, "optimizer_state_dict": _Trap()}
        path.write_bytes(pickle.dumps(content, protocol=2))
    model = LayerGraph(TEXT)
    with pytest.raises(CodefyError, match=r"evil\.pt") as caught:
        execute(ModelLoader, {"model": model}, context, path="evil.pt", load_mode=load_mode)
    assert caught.value.code == "files.unreadable"
    with pytest.raises(CodefyError):
        execute(
            CheckpointLoader,
            {"model": model, "optimizer": torch.optim.SGD(model.parameters())},
            context,
            path="evil.pt",
        )
    assert not (context.root / "trapped").exists()


def test_a_pickled_model_is_refused_with_the_way_out(context):
    torch.save(nn.Linear(1, 1), context.output_file(Family.MODELS, "pickled.pt"))
    with pytest.raises(CodefyError, match=r"torch\.nn\.modules\.linear\.Linear.*model\.state_dict\(\)"):
        execute(ModelLoader, {}, context, path="pickled.pt", load_mode="full_model")


def test_damaged_missing_and_empty_files_are_explained(context):
    context.output_file(Family.MODELS, "broken.pt").write_bytes(b"not a file of torch")
    context.output_file(Family.MODELS, "broken.safetensors").write_bytes(b"\xff" * 9)
    for name in ("broken.pt", "broken.safetensors"):
        with pytest.raises(CodefyError, match="can't be read") as caught:
            execute(ModelLoader, {"model": LayerGraph(TEXT)}, context, path=name)
        assert caught.value.code == "files.unreadable"
    with pytest.raises(CodefyError) as caught:
        execute(ModelLoader, {"model": LayerGraph(TEXT)}, context, path="absent.pt")
    assert caught.value.code == "files.not_found"
    for node in (ModelLoader, CheckpointLoader):
        with pytest.raises(CodefyError, match="path is empty"):
            execute(node, {"model": LayerGraph(TEXT), "optimizer": None}, context)
    for node in (ModelSaver, CheckpointSaver):
        with pytest.raises(CodefyError, match="path is empty"):
            execute(node, {"model": LayerGraph(TEXT), "optimizer": None}, context, path=" ")


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "w.pt"
    torch.save(LayerGraph(TEXT).state_dict(), path)
    return path


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_cut_short_or_with_a_flipped_byte_is_explained_or_whole(data, whole_file, context):
    content = bytearray(whole_file.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:place]
    else:
        content[place] ^= 0xFF
    context.output_file(Family.MODELS, "damaged.pt").write_bytes(content)
    # Whatever is wrong with it, the error is one for people.
    with contextlib.suppress(CodefyError):
        execute(ModelLoader, {"model": LayerGraph(TEXT)}, context, path="damaged.pt")


def test_strict_forgives_names_but_never_shapes(context):
    execute(ModelSaver, {"model": nn.Linear(2, 3)}, context, path="w.pt")
    wider = nn.Linear(2, 4)
    with pytest.raises(CodefyError, match=r"bias \(3,\) instead of \(4,\)"):
        execute(ModelLoader, {"model": wider}, context, path="w.pt", strict=False)
    renamed = nn.Sequential(nn.Linear(2, 3))
    with pytest.raises(CodefyError, match=r"missing: 0\.bias, 0\.weight; not in the model: bias, weight"):
        execute(ModelLoader, {"model": renamed}, context, path="w.pt")
    execute(ModelLoader, {"model": renamed}, context, path="w.pt", strict=False)


def trained():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam([{"params": [model.weight], "lr": 0.5}, {"params": [model.bias]}])
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(4, 2)).square().mean().backward()
        optimizer.step()
    return model, optimizer


def fresh():
    model = nn.Linear(2, 1)
    return model, torch.optim.Adam([{"params": [model.weight]}, {"params": [model.bias]}])


def test_a_checkpoint_brings_weights_state_and_groups_back(context):
    model, optimizer = trained()
    losses = torch.tensor([3.0, 2.0, 1.5])
    execute(CheckpointSaver, {"model": model, "optimizer": optimizer, "losses": losses}, context)
    other, stepper = fresh()
    loaded = execute(CheckpointLoader, {"model": other, "optimizer": stepper}, context, path="checkpoint.pt")
    assert loaded["model"] is other
    assert loaded["optimizer"] is stepper
    assert loaded["epoch"] == 3
    assert torch.equal(loaded["losses"], losses)
    assert [group["lr"] for group in stepper.param_groups] == [0.5, 0.001]
    for network, adam in ((model, optimizer), (other, stepper)):
        adam.zero_grad()
        network(torch.ones(1, 2)).sum().backward()
        adam.step()
    assert torch.equal(model.weight, other.weight)
    assert context.artifacts[0][0] == "output"


def test_the_typed_epoch_wins_and_no_losses_are_an_empty_tensor(context):
    model, optimizer = trained()
    execute(CheckpointSaver, {"model": model, "optimizer": optimizer}, context, epoch=9)
    other, stepper = fresh()
    loaded = execute(CheckpointLoader, {"model": other, "optimizer": stepper}, context, path="checkpoint.pt")
    assert loaded["epoch"] == 9
    assert loaded["losses"].shape == (0,)


@pytest.mark.parametrize("named", [True, False])
def test_another_optimizer_class_is_refused_and_nothing_changes(named, context):
    model, optimizer = trained()
    path = execute(CheckpointSaver, {"model": model, "optimizer": optimizer}, context)["path"]
    if not named:
        content = torch.load(path, weights_only=True)
        del content["optimizer_class"]
        torch.save(content, path)
    other = nn.Linear(2, 1)
    before = other.weight.detach().clone()
    stepper = torch.optim.SGD([{"params": [other.weight]}, {"params": [other.bias]}], lr=1.0)
    with pytest.raises(CodefyError, match="the wired optimizer is SGD"):
        execute(CheckpointLoader, {"model": other, "optimizer": stepper}, context, path="checkpoint.pt")
    assert torch.equal(other.weight, before)
    assert stepper.param_groups[0]["lr"] == 1.0


def test_a_checkpoint_of_an_older_maker_without_class_names_loads(context):
    model, optimizer = trained()
    torch.save(
        {
            "epoch": 2,
            "model_state_dict": model.state_dict(),
            "optimizer_state_dict": optimizer.state_dict(),
            "losses": torch.tensor([2.0, 1.0]),
        },
        context.output_file(Family.MODELS, "old.pt"),
    )
    other, stepper = fresh()
    loaded = execute(CheckpointLoader, {"model": other, "optimizer": stepper}, context, path="old.pt")
    assert same(model, other)
    assert loaded["losses"].tolist() == [2.0, 1.0]


def test_mismatched_wires_and_files_are_explained(context):
    model, optimizer = trained()
    inputs = {"model": model, "optimizer": optimizer}
    execute(CheckpointSaver, inputs, context)
    execute(ModelSaver, {"model": model}, context, path="weights.pt")
    with pytest.raises(CodefyError, match="another model"):
        execute(CheckpointSaver, inputs | {"model": nn.Linear(2, 1)}, context)
    with pytest.raises(CodefyError, match="is no checkpoint"):
        execute(CheckpointLoader, inputs, context, path="weights.pt")
    wide = nn.Linear(5, 1)
    with pytest.raises(CodefyError, match="don't fit this model"):
        execute(
            CheckpointLoader,
            {"model": wide, "optimizer": torch.optim.Adam(wide.parameters())},
            context,
            path="checkpoint.pt",
        )
    one_group = torch.optim.Adam(model.parameters())
    with pytest.raises(CodefyError, match="doesn't fit the wired one"):
        execute(CheckpointLoader, {"model": model, "optimizer": one_group}, context, path="checkpoint.pt")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "w.pt"
    write_whole(path, lambda file: file.write(b"old"))

    def half(file):
        file.write(b"ne")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_whole(path, half)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o644


def test_without_records_nothing_is_recorded(tmp_path):
    context = RecordingContext(root=tmp_path, records=False)
    model, optimizer = trained()
    execute(ModelSaver, {"model": model}, context)
    execute(CheckpointSaver, {"model": model, "optimizer": optimizer}, context)
    assert context.artifacts == []


@pytest.mark.spec("usesfiles/saver-nodes-count")
@pytest.mark.parametrize("node", [ModelSaver, CheckpointSaver])
def test_savers_declare_what_they_write(node):
    path = next(param for param in node.define("").params if param.name == "path")
    assert (path.path, path.family) == (FileRole.WRITES, Family.MODELS)
    assert node.define("").cacheable is False
