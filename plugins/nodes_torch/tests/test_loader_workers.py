"""Worker processes of a loader that are killed."""

import multiprocessing
import os
import signal

import pytest
import torch
from torch.utils.data import Dataset

from codefyui_core.plugin import ProcessKilled
from codefyui_nodes_torch.data.workers import WatchedLoader


class Trap(Dataset):
    """The process that reads the third sample is killed in it, when there is a trap."""

    def __init__(self, *, trap):
        self.trap = trap

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if self.trap and index == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.tensor(float(index))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_killed_worker_is_named_with_its_signal(method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} on this system")
    loader = WatchedLoader(Trap(trap=True), batch_size=2, num_workers=1, multiprocessing_context=method)
    with pytest.raises(ProcessKilled, match="SIGKILL") as caught:
        list(loader)
    assert caught.value.signal == signal.SIGKILL


def test_a_worker_that_is_killed_while_the_main_thread_computes_is_missed_when_it_is_needed():
    """And not by an exception in the middle of whatever is computed just then."""
    loader = WatchedLoader(Trap(trap=False), batch_size=1, num_workers=1, prefetch_factor=1)
    batches = iter(loader)
    first = next(batches)
    (worker,) = batches._workers
    worker.kill()
    worker.join()
    assert first.tolist() == [0.0]
    with pytest.raises(ProcessKilled, match="SIGKILL"):
        list(batches)


def test_a_loader_with_workers_gives_what_one_without_gives():
    with_workers = WatchedLoader(Trap(trap=False), batch_size=3, num_workers=2)
    without = WatchedLoader(Trap(trap=False), batch_size=3)
    assert [batch.tolist() for batch in with_workers] == [batch.tolist() for batch in without]
