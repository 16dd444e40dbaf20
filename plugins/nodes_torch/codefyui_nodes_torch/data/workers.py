"""A loader whose killed worker processes are missed at once, and by the signal that ended them.

Torch looks after its workers every 5 s and says that one "exited unexpectedly"; why is in its exit code.
"""

from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter
from typing_extensions import override

from codefyui_core.plugin import ProcessKilled

LOOK_S = 0.5


class WatchedLoader(DataLoader[Any]):
    """``torch.utils.data.DataLoader``, with ``ProcessKilled`` for a worker that a signal ended."""

    @override
    def _get_iterator(self) -> _BaseDataLoaderIter:
        return _WatchedIterator(self) if self.num_workers else super()._get_iterator()


class _WatchedIterator(_MultiProcessingDataLoaderIter):
    def _try_get_data(self, timeout: float = LOOK_S) -> Any:
        try:
            return super()._try_get_data(min(timeout, LOOK_S))  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            for worker in self._workers:
                if worker.exitcode is not None and worker.exitcode < 0:
                    raise ProcessKilled(
                        f"a worker process of the loader was ended by signal {-worker.exitcode}",
                        signal=-worker.exitcode,
                    ) from error
            raise
