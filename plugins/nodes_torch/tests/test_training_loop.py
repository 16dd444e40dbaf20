"""TrainingLoop: the steps it takes, what it tells, how it stops, and how it goes on."""

import json
import math
import sys
from types import ModuleType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from codefyui_core.errors import CodefyError
from codefyui_core.plugin import Family, FileRole
from codefyui_core.testing.node_context import RecordingContext, execute
from codefyui_nodes_torch.data.loader import DataLoader as DataLoaderNode
from codefyui_nodes_torch.io.checkpoint_saver import CheckpointSaver
from codefyui_nodes_torch.training.layer_graph import LayerGraph
from codefyui_nodes_torch.training.reports import MOST_POINTS, Reporter, thinned
from codefyui_nodes_torch.training.scheduler import LRScheduler
from codefyui_nodes_torch.training.sequential import chain_text
from codefyui_nodes_torch.training.training_loop import TrainingLoop

CLASSIFIER = chain_text(
    [
        ("l1", "Linear", {"in_features": 4, "out_features": 8}),
        ("norm", "BatchNorm1d", {"num_features": 8}),
        ("relu", "ReLU", None),
        ("drop", "Dropout", {"p": 0.3}),
        ("l2", "Linear", {"in_features": 8, "out_features": 3}),
    ]
)


def _data(rows=37):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(rows, 4, generator=generator)
    return TensorDataset(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long())


def _model(text=CLASSIFIER):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return LayerGraph(text)


def _parts(context, *, data=None, schedule=None, validate=True, optimizer=torch.optim.Adam, lr=0.01):
    data = data or _data()
    model = _model()
    stepper = optimizer(model.parameters(), lr=lr)
    inputs = {
        "model": model,
        "optimizer": stepper,
        "loss_fn": nn.CrossEntropyLoss(),
        "dataloader": execute(DataLoaderNode, {"dataset": data}, context, batch_size=8)["dataloader"],
    }
    if validate:
        inputs["val_dataloader"] = DataLoader(data, batch_size=16)
    if schedule:
        made = execute(LRScheduler, {"optimizer": stepper}, context, type=schedule, step_size=2, T_max=3)
        inputs["lr_scheduler"] = made["scheduler"]
    return inputs


def _context(root, **more):
    return RecordingContext(root=root, node_id="sub/training", seed=11, **more)


def _metric(context, name):
    return [value for found, value, _ in context.metrics if found == name]


def test_it_takes_the_steps_of_a_plain_torch_loop(tmp_path):
    data = _data(10)
    model, twin = nn.Linear(4, 3), nn.Linear(4, 3)
    twin.load_state_dict(model.state_dict())
    mine = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    theirs = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(3):
        total = 0.0
        for x, y in DataLoader(data, batch_size=4):
            theirs.zero_grad()
            loss = nn.functional.cross_entropy(twin(x), y)
            loss.backward()
            theirs.step()
            total += loss.item() * len(y)
        losses.append(total / len(data))
    outputs = execute(
        TrainingLoop,
        {
            "model": model,
            "optimizer": mine,
            "loss_fn": nn.CrossEntropyLoss(),
            "dataloader": DataLoader(data, batch_size=4),
        },
        root=tmp_path,
        epochs=3,
    )
    assert outputs["model"] is model
    assert torch.equal(model.weight, twin.weight)
    assert outputs["losses"].tolist() == pytest.approx(losses)
    assert outputs["val_losses"].numel() == 0


def test_the_wired_optimizer_is_the_one_used(tmp_path):
    model = nn.Linear(4, 3)
    frozen = model.bias.detach().clone()
    stepper = torch.optim.SGD([{"params": [model.weight], "lr": 0.5}, {"params": [model.bias], "lr": 0.0}])
    inputs = {
        "model": model,
        "optimizer": stepper,
        "loss_fn": nn.CrossEntropyLoss(),
        "dataloader": DataLoader(_data(), 8),
    }
    context = RecordingContext(root=tmp_path)
    before = model.weight.detach().clone()
    execute(TrainingLoop, inputs, context, epochs=1)
    assert torch.equal(model.bias, frozen)
    assert not torch.equal(model.weight, before)
    assert _metric(context, "lr") == [0.5]
    with pytest.raises(CodefyError, match="another model"):
        execute(TrainingLoop, inputs | {"model": nn.Linear(4, 3)}, context)


def test_it_tells_config_epochs_and_batches(tmp_path):
    context = _context(tmp_path)
    outputs = execute(TrainingLoop, _parts(context), context, epochs=2, early_stopping_patience=5)
    events = [payload["event"] for payload in context.payloads]
    assert events[0] == "config"
    assert events.count("epoch") == 2
    assert "batch" in events
    config = context.payloads[0]["config"]
    assert set(config) >= {
        "model_class", "params", "trainable", "optimizer", "lr", "loss_fn", "epochs", "device", "batch_size",
        "early_stopping", "patience", "grad_clip_norm", "has_validation", "has_lr_scheduler",
    }  # fmt: skip
    assert (config["optimizer"], config["batch_size"], config["grad_clip_norm"]) == ("Adam", 8, "disabled")
    last = context.payloads[-1]
    assert set(last) >= {"epoch", "total_epochs", "loss", "losses", "lr", "val_loss", "val_losses"}
    assert (last["epoch"], last["total_epochs"], last["patience_counter"]) == (2, 2, 0)
    assert last["losses"] == pytest.approx(outputs["losses"].tolist(), abs=1e-6)
    assert [(name, step) for name, _, step in context.metrics if step == 2] == [
        ("train_loss", 2), ("lr", 2), ("val_loss", 2), ("val_accuracy", 2),
    ]  # fmt: skip
    assert outputs["metrics"]["final_val_loss"] == pytest.approx(outputs["val_losses"][-1].item())
    json.dumps(context.payloads, allow_nan=False)


def test_batches_are_told_at_most_twice_a_second(tmp_path):
    times = iter([0.0, 0.2, 0.49, 0.5, 0.6, 1.0])
    context = RecordingContext(root=tmp_path)
    reporter = Reporter(context, lambda: next(times))
    for batch in range(1, 7):
        reporter.batch(1, batch, 6, lambda: math.inf)
    assert [payload["batch"] for payload in context.payloads] == [1, 4, 6]
    assert context.payloads[0] | {"batch": 0} == {
        "event": "batch",
        "epoch": 1,
        "batch": 0,
        "total_batches": 6,
        "loss": None,
        "loss_text": "inf",
    }


@given(st.integers(1, 10 * MOST_POINTS))
def test_long_curves_are_thinned_and_keep_their_end(count):
    shown = thinned([float(number) for number in range(count)])
    assert len(shown) <= MOST_POINTS
    assert shown[-1] == count - 1
    assert shown == sorted(shown)
    if count <= MOST_POINTS:
        assert len(shown) == count


def test_points_of_a_curve_that_are_no_numbers_are_null():
    assert thinned([1.0, math.nan, -math.inf]) == [1.0, None, None]


def test_a_loss_that_is_no_number_stays_out_of_json(tmp_path):
    context = RecordingContext(root=tmp_path)
    model = nn.Linear(1, 1)
    inputs = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters()),
        "loss_fn": nn.MSELoss(),
        "dataloader": DataLoader(TensorDataset(torch.full((4, 1), math.nan), torch.zeros(4, 1)), 2),
    }
    outputs = execute(TrainingLoop, inputs, context, epochs=9, early_stopping_patience=2)
    json.dumps(context.payloads, allow_nan=False)
    assert context.payloads[-1]["loss"] is None
    assert context.payloads[-1]["loss_text"] == "NaN"
    assert outputs["metrics"]["stopped_early"] is True
    assert outputs["metrics"]["best_epoch"] is None
    assert outputs["metrics"]["total_epochs_run"] == 2


def test_early_stopping_takes_the_best_weights(tmp_path):
    context = RecordingContext(root=tmp_path)
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(0.0)
    ones = torch.ones(1, 1)
    inputs = {
        "model": model,
        # Each step moves the weight by 1 towards 10; validation likes 3 best.
        "optimizer": torch.optim.SGD(model.parameters(), lr=1.0),
        "loss_fn": nn.L1Loss(),
        "dataloader": DataLoader(TensorDataset(ones, 10 * ones), 1),
        "val_dataloader": DataLoader(TensorDataset(ones, 3 * ones), 1),
    }
    outputs = execute(TrainingLoop, inputs, context, epochs=50, early_stopping_patience=2)
    assert model.weight.item() == 3.0
    assert outputs["metrics"]["best_epoch"] == 3
    assert outputs["metrics"]["stopped_early"] is True
    assert outputs["val_losses"].tolist() == [2.0, 1.0, 0.0, 1.0, 2.0]
    assert context.payloads[-1]["best_epoch"] == 3
    assert context.payloads[-1]["patience_counter"] == 2


def test_a_resumed_training_without_patience_keeps_its_last_weights(tmp_path):
    context = _context(tmp_path)
    execute(TrainingLoop, _parts(context), context, epochs=1, checkpoint_every=1, early_stopping_patience=3)
    name = f"periodic/{context.artifacts[-1][1].name}"
    again = _context(tmp_path)
    resumed = execute(TrainingLoop, _parts(again), again, epochs=3, resume_from=name)
    whole = execute(TrainingLoop, _parts(again), again, epochs=3)
    weights = whole["model"].state_dict()
    assert all(torch.equal(value, weights[key]) for key, value in resumed["model"].state_dict().items())


def test_gradients_are_clipped(tmp_path):
    model = nn.Linear(1, 1, bias=False)
    before = model.weight.item()
    inputs = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=1.0),
        "loss_fn": nn.L1Loss(),
        "dataloader": DataLoader(TensorDataset(torch.full((1, 1), 1000.0), torch.full((1, 1), 1e9)), 1),
    }
    execute(TrainingLoop, inputs, root=tmp_path, epochs=1, grad_clip_norm=0.25)
    assert model.weight.item() == pytest.approx(before + 0.25, abs=1e-5)


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("StepLR", [0.01, 0.01, 0.001, 0.001]),
        ("ExponentialLR", [0.01, 0.001, 1e-4, 1e-5]),
        ("CosineAnnealingLR", [0.01, 0.0075, 0.0025, 0.0]),
        ("CosineAnnealingWarmRestarts", [0.01, 0.0075, 0.0025, 0.01]),
    ],
)
def test_schedules_step_once_an_epoch(schedule, rates, tmp_path):
    context = _context(tmp_path)
    execute(TrainingLoop, _parts(context, schedule=schedule), context, epochs=4)
    assert _metric(context, "lr") == pytest.approx(rates)


def test_one_cycle_runs_over_the_steps_of_the_training(tmp_path):
    context = _context(tmp_path)
    inputs = _parts(context, schedule="OneCycleLR")
    execute(TrainingLoop, inputs, context, epochs=4)
    twin = torch.optim.Adam([nn.Parameter(torch.zeros(1))])
    reference = torch.optim.lr_scheduler.OneCycleLR(twin, max_lr=0.01, total_steps=20)
    rates = []
    for step in range(1, 20):
        twin.step()
        reference.step()
        if step % 5 == 0:
            rates.append(twin.param_groups[0]["lr"])
    assert _metric(context, "lr")[:3] == pytest.approx(rates)
    assert _metric(context, "lr")[-1] < 1e-6


@pytest.mark.parametrize("precision", ["amp_bf16", "amp_fp16"])
def test_mixed_precision_learns_and_keeps_float32_weights(precision, tmp_path):
    context = _context(tmp_path)
    outputs = execute(TrainingLoop, _parts(context), context, epochs=8, precision=precision)
    assert outputs["losses"][-1] < outputs["losses"][0]
    assert {parameter.dtype for parameter in outputs["model"].parameters()} == {torch.float32}


def test_the_global_generator_is_left_alone_by_a_seeded_training(tmp_path):
    context = _context(tmp_path)
    inputs = _parts(context)
    before = torch.get_rng_state()
    execute(TrainingLoop, inputs, context, epochs=1)
    assert torch.equal(torch.get_rng_state(), before)


# Stopping and going on

CLEAN = {"epochs": 4, "early_stopping_patience": 3}


@pytest.fixture(scope="module", params=[None, "StepLR", "OneCycleLR", "ReduceLROnPlateau", "MultiStepLR"])
def unbroken(request, tmp_path_factory):
    context = _context(tmp_path_factory.mktemp("unbroken"))
    return request.param, execute(TrainingLoop, _parts(context, schedule=request.param), context, **CLEAN)


@pytest.mark.spec("undefined/resume-from-interrupted")
@pytest.mark.parametrize("asked", [0, 3, 7, 14, 15, 21])
def test_a_stopped_training_goes_on_as_if_never_stopped(unbroken, asked, tmp_path):
    schedule, expected = unbroken
    first = _context(tmp_path, stop_after=asked)
    stopped = execute(TrainingLoop, _parts(first, schedule=schedule), first, **CLEAN)
    assert stopped["__interrupted__"] is True
    [(kind, path, meta)] = first.artifacts
    assert kind == "checkpoint"
    assert meta["interrupted"] is True
    assert path.parent == tmp_path / "models" / "interrupted"
    assert path.name == f"{first.run_id}-sub_training-e{meta['epoch']}b{meta['batch']}.pt"
    second = _context(tmp_path)
    resumed = execute(
        TrainingLoop,
        _parts(second, schedule=schedule),
        second,
        resume_from=f"interrupted/{path.name}",
        **CLEAN,
    )
    assert "__interrupted__" not in resumed
    assert torch.equal(resumed["losses"], expected["losses"])
    assert torch.equal(resumed["val_losses"], expected["val_losses"])
    assert resumed["metrics"] == expected["metrics"]
    weights = expected["model"].state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in resumed["model"].state_dict().items())


def test_an_unseeded_training_goes_on_exactly_in_its_epoch_too(tmp_path):
    def parts():
        inputs = _parts(RecordingContext(root=tmp_path))
        return inputs, inputs["dataloader"]

    torch.manual_seed(0)
    inputs, _ = parts()
    whole = execute(TrainingLoop, inputs, root=tmp_path, epochs=1)
    torch.manual_seed(0)
    first = RecordingContext(root=tmp_path, stop_after=2)
    execute(TrainingLoop, parts()[0], first, epochs=1)
    name = first.artifacts[0][1].name
    resumed = execute(TrainingLoop, parts()[0], root=tmp_path, epochs=1, resume_from=f"interrupted/{name}")
    assert torch.equal(resumed["losses"], whole["losses"])


def test_periodic_checkpoints_are_kept_and_go_on(tmp_path):
    context = _context(tmp_path)
    whole = execute(
        TrainingLoop, _parts(context), context, epochs=4, checkpoint_every=2, checkpoint_every_steps=7
    )
    names = [path.relative_to(tmp_path).as_posix() for _, path, _ in context.artifacts]
    stem = f"models/periodic/{context.run_id}-sub_training"
    assert names == [f"{stem}-e2b2.pt", f"{stem}-e2.pt", f"{stem}-e3b4.pt", f"{stem}-e4.pt"]
    saved = torch.load(tmp_path / names[1], weights_only=True)
    assert set(saved) >= {
        "epoch", "model_state_dict", "optimizer_state_dict", "initial_lrs", "losses", "scheduler_state_dict",
        "scheduler_class", "scaler_state_dict",
    }  # fmt: skip
    assert saved["epoch"] == 2
    for name in names[:3]:
        again = _context(tmp_path)
        resumed = execute(
            TrainingLoop, _parts(again), again, epochs=4, resume_from=name.removeprefix("models/")
        )
        assert torch.equal(resumed["losses"], whole["losses"])
    assert not list(tmp_path.rglob("*.part"))


def test_a_run_without_records_writes_but_records_nothing(tmp_path):
    context = _context(tmp_path, records=False)
    execute(TrainingLoop, _parts(context), context, epochs=1, checkpoint_every=1)
    assert context.artifacts == []
    assert len(list((tmp_path / "models" / "periodic").iterdir())) == 1


def test_a_finished_checkpoint_trains_no_more(tmp_path):
    context = _context(tmp_path)
    whole = execute(TrainingLoop, _parts(context), context, epochs=2, checkpoint_every=2)
    name = f"periodic/{context.artifacts[-1][1].name}"
    again = _context(tmp_path)
    resumed = execute(TrainingLoop, _parts(again), again, epochs=2, resume_from=name)
    assert torch.equal(resumed["losses"], whole["losses"])
    assert again.metrics == []


def test_a_checkpoint_of_checkpoint_saver_goes_on_with_its_optimizer(tmp_path):
    context = _context(tmp_path)
    inputs = _parts(context)
    whole = execute(TrainingLoop, _parts(context), context, epochs=3)
    execute(TrainingLoop, inputs, context, epochs=2)
    saved = {"model": inputs["model"], "optimizer": inputs["optimizer"]}
    execute(CheckpointSaver, saved, context, path="saved.pt", epoch=2)
    again = _context(tmp_path)
    resumed = execute(TrainingLoop, _parts(again), again, epochs=3, resume_from="saved.pt")
    assert resumed["losses"][:2].isnan().all()
    assert torch.equal(resumed["losses"][2], whole["losses"][2])
    json.dumps(again.payloads, allow_nan=False)


def test_another_schedule_or_optimizer_is_refused_on_resume(tmp_path):
    context = _context(tmp_path)
    execute(TrainingLoop, _parts(context, schedule="StepLR"), context, epochs=1, checkpoint_every=1)
    name = f"periodic/{context.artifacts[-1][1].name}"
    again = _context(tmp_path)
    with pytest.raises(CodefyError, match="schedule StepLR, this training has none"):
        execute(TrainingLoop, _parts(again), again, resume_from=name)
    with pytest.raises(CodefyError, match="made with Adam, the wired optimizer is SGD"):
        execute(
            TrainingLoop,
            _parts(again, schedule="StepLR", optimizer=torch.optim.SGD),
            again,
            resume_from=name,
        )


# Several inputs and outputs

TWO_INPUTS = json.dumps(
    {
        "version": 2,
        "nodes": [
            {"id": "in", "type": "Input", "ports": [{"id": "a", "name": "a"}, {"id": "b", "name": "b"}]},
            {"id": "cat", "type": "Concat"},
            {"id": "lin", "type": "Linear", "params": {"in_features": 3, "out_features": 1}},
            {"id": "out", "type": "Output", "ports": [{"id": "y", "name": "y"}]},
        ],
        "edges": [
            {"id": "1", "source": "in", "sourceHandle": "a", "target": "cat"},
            {"id": "2", "source": "in", "sourceHandle": "b", "target": "cat"},
            {"id": "3", "source": "cat", "target": "lin"},
            {"id": "4", "source": "lin", "target": "out", "targetHandle": "y"},
        ],
    }
)


def _two(items):
    model = _model(TWO_INPUTS)
    return {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "loss_fn": nn.MSELoss(),
        "dataloader": DataLoader(items, batch_size=2),
    }


def test_models_of_several_inputs_train_on_tuples_and_dicts(tmp_path):
    a, b, y = torch.randn(6, 2), torch.randn(6, 1), torch.randn(6)
    forms = [
        [(a[i], b[i], y[i]) for i in range(6)],
        [((a[i], b[i]), y[i]) for i in range(6)],
        [({"b": b[i], "a": a[i]}, y[i]) for i in range(6)],
        [{"b": b[i], "a": a[i], "target": y[i]} for i in range(6)],
    ]
    results = [execute(TrainingLoop, _two(form), root=tmp_path, epochs=2)["losses"] for form in forms]
    assert all(torch.equal(losses, results[0]) for losses in results)


def test_items_that_do_not_fit_the_inputs_are_explained(tmp_path):
    for items in ([(torch.ones(3), torch.ones(1))] * 4, [{"a": torch.ones(2), "b": torch.ones(1)}] * 4):
        with pytest.raises(CodefyError, match="The model takes a, b"):
            execute(TrainingLoop, _two(items), root=tmp_path)


def test_several_outputs_need_a_target_each(tmp_path):
    text = json.loads(TWO_INPUTS)
    text["nodes"][-1]["ports"].append({"id": "z", "name": "z"})
    text["edges"].append({"id": "5", "source": "lin", "target": "out", "targetHandle": "z"})
    model = _model(json.dumps(text))
    inputs = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "loss_fn": nn.MSELoss(),
    }
    x, y = {"a": torch.ones(2), "b": torch.ones(1)}, torch.ones(1)
    good = DataLoader([(x, {"y": y, "z": y})] * 4, batch_size=2)
    assert execute(TrainingLoop, inputs | {"dataloader": good}, root=tmp_path)["losses"].isfinite().all()
    with pytest.raises(CodefyError, match="answers y, z"):
        execute(TrainingLoop, inputs | {"dataloader": DataLoader([(x, y)] * 4)}, root=tmp_path)


# Declarations and refusals


def test_losses_of_two_outputs_are_refused(tmp_path):
    context = _context(tmp_path)
    with pytest.raises(CodefyError, match="MarginRankingLoss compares two outputs"):
        execute(TrainingLoop, _parts(context) | {"loss_fn": nn.MarginRankingLoss()}, context)


def test_another_optimizers_schedule_and_what_is_no_module_are_refused(tmp_path):
    context = _context(tmp_path)
    inputs = _parts(context)
    other = _parts(context, schedule="StepLR")["lr_scheduler"]
    for schedule in (other, "StepLR"):
        with pytest.raises(CodefyError, match="over the optimizer that is wired here"):
            execute(TrainingLoop, inputs | {"lr_scheduler": schedule}, context)
    with pytest.raises(CodefyError, match="needs a torch module; it got str"):
        execute(TrainingLoop, inputs | {"model": "m"}, context)


def test_tensorboard_names_its_package_when_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    context = _context(tmp_path)
    with pytest.raises(CodefyError, match="pip install tensorboard"):
        execute(TrainingLoop, _parts(context), context, tensorboard=True)


class _Writer:
    """Stands in for TensorBoard's writer, whose package is not part of this project."""

    def __init__(self, log_dir):
        self.file = open(f"{log_dir}/events", "w", encoding="utf-8")  # noqa: SIM115

    def add_scalar(self, tag, scalar_value, global_step):
        self.file.write(f"{tag} {global_step}\n")

    def close(self):
        self.file.close()


def test_tensorboard_gets_each_epoch_and_its_folder_is_recorded(tmp_path, monkeypatch):
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = _Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    context = _context(tmp_path)
    execute(TrainingLoop, _parts(context), context, epochs=2, tensorboard=True)
    [(kind, folder, _)] = context.artifacts
    assert kind == "tensorboard"
    assert folder == tmp_path / "output" / "tensorboard" / f"{context.run_id}-sub_training"
    assert (folder / "events").read_text().splitlines()[:4] == [
        "train_loss 1",
        "lr 1",
        "val_loss 1",
        "val_accuracy 1",
    ]


@pytest.mark.spec("usesfiles/training-loop-periodic-outputs-count")
def test_what_it_records_is_declared_by_param():
    rules = {rule.when: rule for rule in TrainingLoop.define("").files}
    assert set(rules) == {"checkpoint_every", "checkpoint_every_steps", "tensorboard"}
    assert {rule.role for rule in rules.values()} == {FileRole.RECORDS}
    assert rules["checkpoint_every"].family is Family.MODELS
    assert TrainingLoop.define("").cacheable is False
