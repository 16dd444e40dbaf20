"""What a wired loader is made of, so that several processes can each make one over their part of its data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, RandomSampler, Sampler, SequentialSampler

from ..base import UnfitError
from .workers import WatchedLoader


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderPlan:
    """Everything of a loader but its order. Can be sent to another process if the data set can."""

    dataset: Any
    batch_size: int
    shuffle: bool
    num_workers: int
    collate: Callable[[list[Any]], Any]
    drop_last: bool
    pin_memory: bool

    @classmethod
    def of(cls, loader: Any, port: str) -> "LoaderPlan":
        """Raises: UnfitError for what can't be divided."""
        if not isinstance(loader, DataLoader) or loader.batch_size is None:
            raise UnfitError(
                f"TrainingLoop: with strategy ddp, {port} needs batches of the DataLoader node, whose data set can"
                f" be divided among the ranks; it got {type(loader).__name__}."
            )
        if not isinstance(loader.sampler, RandomSampler | SequentialSampler):
            raise UnfitError(
                f"TrainingLoop: with strategy ddp, {port} can't keep its own order"
                f" ({type(loader.sampler).__name__}): each rank draws from a part of the data set."
            )
        return cls(
            dataset=loader.dataset,
            batch_size=loader.batch_size,
            shuffle=isinstance(loader.sampler, RandomSampler),
            num_workers=loader.num_workers,
            collate=loader.collate_fn,
            drop_last=loader.drop_last,
            pin_memory=loader.pin_memory,
        )

    def loader(self, dataset: Any, sampler: "Sampler[Any] | None") -> "DataLoader[Any]":
        """Over ``dataset``, which is all or a part of the own one."""
        return WatchedLoader(
            dataset,
            batch_size=self.batch_size,
            sampler=sampler,
            num_workers=self.num_workers,
            collate_fn=self.collate,
            drop_last=self.drop_last,
            pin_memory=self.pin_memory,
        )
