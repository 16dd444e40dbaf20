"""A loader whose killed worker processes are missed at once, and by the signal that ended them.

Torch looks after its workers every 5 s and says that one "exited unexpectedly"; why is in its exit code.
"""

import signal
from typing import Any

from torch._C import _remove_worker_pids
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter
from typing_extensions import override

from codefyui_core.plugin import ProcessKilled

LOOK_S = 0.5
END_S = 1.0
"""A broken connection may be noticed before the end of the process that broke it."""


class WatchedLoader(DataLoader[Any]):
    """``torch.utils.data.DataLoader``, with ``ProcessKilled`` for a worker that a signal ended."""

    @override
    def _get_iterator(self) -> _BaseDataLoaderIter:
        return _WatchedIterator(self) if self.num_workers else super()._get_iterator()


class _WatchedIterator(_MultiProcessingDataLoaderIter):
    def __init__(self, loader: WatchedLoader) -> None:
        super().__init__(loader)
        # In a process's main thread torch would raise from a SIGCHLD handler, wherever that thread happens to be.
        if self._worker_pids_set:
            _remove_worker_pids(id(self))
            self._worker_pids_set = False

    def _try_get_data(self, timeout: float = LOOK_S) -> Any:
        try:
            return super()._try_get_data(min(timeout, LOOK_S))  # type: ignore[no-untyped-call]
        except Exception as error:
            # Besides torch's own RuntimeError: the socket over which a dead worker would have handed its tensors.
            number = self._killed_by()
            if number is None:
                raise
            raise ProcessKilled(
                f"a worker process of the loader was ended by {signal_name(number)}", signal=number
            ) from error

    def _killed_by(self) -> int | None:
        for worker in self._workers:
            worker.join(END_S / len(self._workers))
            if worker.exitcode is not None and worker.exitcode < 0:
                return -int(worker.exitcode)
        return None


def signal_name(number: int) -> str:
    """Such as SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
