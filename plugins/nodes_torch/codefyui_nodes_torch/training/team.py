"""The processes that train one model together: one by itself, or ranks that keep step.

Every rank takes the same decisions: what differs from rank to rank is summed or told by the first one before it
is acted upon, so that no rank waits for a collective operation that another one never reaches.
https://docs.pytorch.org/docs/stable/notes/ddp.html
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset
from typing_extensions import override

from codefyui_core.plugin import NodeContext

from ..data.sharing import LoaderPlan
from .measures import Hits, Mean
from .randomness import reseed


class Team:
    """One process by itself; also what each rank is asked."""

    rank = 0

    def wrapped(self, model: nn.Module, device: torch.device) -> nn.Module:
        """What forward passes of training go through; its parameters are the model's own."""
        del device
        return model

    def order(self, loader: Any, seed: int) -> None:
        """Set the order of the batches of an epoch."""
        reseed(loader, seed)

    def own_seed(self, seed: int) -> int:
        """For randomness inside of the model, which each rank draws for itself."""
        return seed

    def told(self, number: Callable[[], int]) -> int:
        """A number that the first rank makes."""
        return number()

    def stops(self, context: NodeContext) -> bool:
        """The run is to stop: all ranks answer the same. Each must ask, in the same place."""
        return context.should_stop()

    def rounds(self, loader: Any) -> Iterator[Any]:
        """Items to measure on; None in a round in which other ranks have one, and this one doesn't."""
        return iter(loader)

    def sum_mean(self, mean: Mean) -> Mean:
        """Over all ranks."""
        return mean

    def sum_hits(self, hits: Hits) -> Hits:
        return hits


class Ranks(Team):
    """One rank among others. The process group has to be there.

    Decisions and sums are made on the CPU, whatever the gradients travel over.
    """

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def share(self, plan: LoaderPlan) -> "DataLoader[Any]":
        """The own part of the training data: as many samples as every other rank has, some of them twice if
        they don't divide (``DistributedSampler``).
        """
        sampler: DistributedSampler[Any] = DistributedSampler(
            plan.dataset, num_replicas=self.size, rank=self.rank, shuffle=plan.shuffle
        )
        return plan.loader(plan.dataset, sampler)

    def share_to_measure(self, plan: LoaderPlan) -> "DataLoader[Any]":
        """The own part of the validation data: each sample is some rank's, and none is two ranks'."""
        count = len(plan.dataset)
        own: Subset[Any] = Subset(plan.dataset, range(self.rank, count, self.size))
        return plan.loader(own, None)

    @override
    def wrapped(self, model: nn.Module, device: torch.device) -> nn.Module:
        # A graph may hold layers that no output depends on; torch warns where there are none.
        warnings.filterwarnings("ignore", message="find_unused_parameters=True was specified")
        return DistributedDataParallel(
            model,
            device_ids=[device.index] if device.type == "cuda" else None,
            find_unused_parameters=True,
        )

    @override
    def order(self, loader: Any, seed: int) -> None:
        loader.sampler.set_epoch(seed)

    @override
    def own_seed(self, seed: int) -> int:
        return (seed + self.rank) % 2**63

    @override
    def told(self, number: Callable[[], int]) -> int:
        box = torch.tensor([number() if self.rank == 0 else 0], dtype=torch.int64)
        dist.broadcast(box, src=0)
        return int(box.item())

    @override
    def stops(self, context: NodeContext) -> bool:
        return self.told(lambda: int(context.should_stop())) == 1

    @override
    def rounds(self, loader: Any) -> Iterator[Any]:
        most = torch.tensor([len(loader)])
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        items = iter(loader)
        return (next(items, None) for _ in range(int(most.item())))

    @override
    def sum_mean(self, mean: Mean) -> Mean:
        total, samples = self._summed(float(mean.total), float(mean.samples))
        return Mean(total=total, samples=round(samples))

    @override
    def sum_hits(self, hits: Hits) -> Hits:
        correct, total = self._summed(float(hits.correct), float(hits.total))
        return Hits(correct=round(correct), total=round(total))

    @staticmethod
    def _summed(*numbers: float) -> list[float]:
        both = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(both)
        return [float(number) for number in both]


ALONE = Team()
