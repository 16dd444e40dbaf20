"""Training by several ranks: real processes over gloo, in step, and what becomes of them."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from codefyui_core.errors import CodefyError, ProcessKilled
from codefyui_core.testing.node_context import RecordingContext, execute
from codefyui_nodes_torch.training import ranks as ranks_module
from codefyui_nodes_torch.training.ranks import rank_count
from codefyui_nodes_torch.training.training_loop import TrainingLoop

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ranks are looked up in /proc")
DEADLINE_S = 60


class Telling(Dataset):
    """Writes down which process asked for which sample; one sample may do something else."""

    def __init__(self, folder, rows=12, trap=None):
        self.folder, self.rows, self.trap = folder, rows, trap

    def __len__(self):
        return self.rows

    def __getitem__(self, index):
        with (self.folder / f"rank-{os.getpid()}").open("a") as file:
            file.write(f"{index}\n")
        if self.trap is not None:
            self.trap(self, index)
        return torch.full((4,), float(index)), torch.tensor([float(index % 3)])

    def read(self):
        """Samples by process, in the order of their reading."""
        files = sorted(self.folder.glob("rank-*"))
        return [[int(line) for line in file.read_text().split()] for file in files]


def _out_of_memory(data, index):
    if index == data.rows - 1:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")


def _killed(data, index):
    if index == data.rows - 1:
        os.kill(os.getpid(), signal.SIGKILL)


def _slow(data, index):
    time.sleep(0.01)


def _parts(data, lr=0.01, shuffle=False, **more):
    torch.manual_seed(3)
    model = nn.Linear(4, 1)
    return {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=lr),
        "loss_fn": nn.MSELoss(),
        "dataloader": DataLoader(data, batch_size=2, shuffle=shuffle),
        **more,
    }


def _train(context, inputs, **params):
    return execute(TrainingLoop, inputs, context, strategy="ddp", ranks=2, **params)


class StoppedOnceBothRead(RecordingContext):
    def should_stop(self):
        return len(list(self.root.glob("rank-*"))) == 2


def _is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _until_gone(folder):
    deadline = time.monotonic() + DEADLINE_S
    pids = [int(path.name.removeprefix("rank-")) for path in folder.glob("rank-*")]
    while any(_is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline, pids
        time.sleep(0.01)
    return pids


@pytest.mark.spec("limits/ddp-within-worker")
def test_two_ranks_train_disjoint_parts_in_step_and_take_the_steps_of_their_mean_gradient(tmp_path):
    data = Telling(tmp_path)
    inputs = _parts(
        data, lr=0.001, val_dataloader=DataLoader(TensorDataset(torch.zeros(5, 4), torch.ones(5, 1)))
    )
    twin = nn.Linear(4, 1)
    twin.load_state_dict(inputs["model"].state_dict())
    context = RecordingContext(root=tmp_path, seed=1)
    outputs = _train(context, inputs, epochs=2, checkpoint_every=1)

    first, second = data.read()
    assert len(_until_gone(tmp_path)) == 2
    assert sorted(first[:6] + second[:6]) == list(range(12))
    assert first[:6] in ([0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11])

    stepper = torch.optim.SGD(twin.parameters(), lr=0.001)
    losses = []
    for _ in range(2):
        seen = []
        for start in range(0, 12, 4):
            x = torch.tensor([[float(row)] * 4 for row in range(start, start + 4)])
            y = torch.tensor([[float(row % 3)] for row in range(start, start + 4)])
            stepper.zero_grad()
            loss = nn.functional.mse_loss(twin(x), y)
            loss.backward()
            stepper.step()
            seen.append(loss.item())
        losses.append(sum(seen) / 3)
    for name, value in twin.state_dict().items():
        torch.testing.assert_close(outputs["model"].state_dict()[name], value)
    assert outputs["model"] is inputs["model"]
    torch.testing.assert_close(outputs["losses"], torch.tensor(losses))
    assert [step for name, _, step in context.metrics if name == "train_loss"] == [1, 2]
    validated = nn.functional.mse_loss(twin(torch.zeros(5, 4)), torch.ones(5, 1)).item()
    torch.testing.assert_close(outputs["val_losses"][-1].item(), validated)
    assert [path.name.rpartition("-")[2] for _, path, _ in context.artifacts] == ["e1.pt", "e2.pt"]
    assert all(path.exists() for _, path, _ in context.artifacts)


@pytest.mark.parametrize(
    ("trap", "error", "words"),
    [
        (_killed, ProcessKilled, r"rank \d was ended by SIGKILL"),
        (_out_of_memory, CodefyError, r"rank \d failed: OutOfMemoryError: CUDA out of memory"),
    ],
)
def test_a_rank_that_dies_fails_the_training_with_its_own_cause(tmp_path, trap, error, words):
    """And not with what its death does to the other rank."""
    context = RecordingContext(root=tmp_path)
    with pytest.raises(error, match=words) as caught:
        _train(context, _parts(Telling(tmp_path, trap=trap)), epochs=3)
    _until_gone(tmp_path)
    if error is ProcessKilled:
        assert caught.value.signal == signal.SIGKILL
    else:
        assert isinstance(caught.value.__cause__, torch.OutOfMemoryError)
        assert "Traceback" in "".join(context.lines)


def test_a_stop_reaches_every_rank_and_the_first_one_writes_the_checkpoint(tmp_path):
    data = Telling(tmp_path, rows=4000, trap=_slow)
    context = StoppedOnceBothRead(root=tmp_path)
    outputs = _train(context, _parts(data), epochs=3)
    assert outputs["__interrupted__"] is True
    ((kind, path, meta),) = context.artifacts
    assert (kind, path.parent.name, meta["interrupted"]) == ("checkpoint", "interrupted", True)
    content = torch.load(path, weights_only=True)
    assert content["partial"]["batches"] == meta["batch"]
    _until_gone(tmp_path)

    whole = Telling(tmp_path / "again", rows=2 * 2 * int(meta["batch"]) + 8)
    whole.folder.mkdir()
    later = RecordingContext(root=tmp_path)
    resumed = _train(later, _parts(whole), epochs=1, resume_from=f"interrupted/{path.name}")
    assert len(resumed["losses"]) == 1
    assert "__interrupted__" not in resumed


def test_what_cannot_be_divided_or_sent_is_refused_before_anything_starts(tmp_path, monkeypatch):
    context = RecordingContext(root=tmp_path)
    data = Telling(tmp_path)
    with pytest.raises(CodefyError, match="dataloader needs batches of the DataLoader node"):
        _train(context, _parts(data) | {"dataloader": [(1, 2)]})
    own = torch.utils.data.WeightedRandomSampler([1.0] * 12, 12)
    with pytest.raises(CodefyError, match="own order"):
        _train(context, _parts(data) | {"dataloader": DataLoader(data, sampler=own)})

    class Local(nn.Linear):
        pass

    unsent = _parts(data)
    unsent["model"] = Local(4, 1)
    unsent["optimizer"] = torch.optim.SGD(unsent["model"].parameters(), lr=0.1)
    with pytest.raises(CodefyError, match="can't be sent"):
        _train(context, unsent)
    with pytest.raises(CodefyError, match="not on mps"):
        rank_count(0, torch.device("mps"))
    monkeypatch.setattr(ranks_module.torch.cuda, "device_count", lambda: 2)
    assert rank_count(0, torch.device("cuda", 0)) == 2
    assert rank_count(0, torch.device("cpu")) == 2
    with pytest.raises(CodefyError, match="4 ranks need 4 cards"):
        rank_count(4, torch.device("cuda", 0))
    assert not list(tmp_path.glob("rank-*"))
