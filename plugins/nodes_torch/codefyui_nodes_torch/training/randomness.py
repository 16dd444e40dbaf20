"""Random numbers of a training: a private state for each stretch, taken down and put back."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


@contextmanager
def own_randomness(device: torch.device, seed: int | None) -> Iterator[None]:
    """A private global random state of the CPU and of ``device``, from ``seed`` on; None leaves it alone."""
    if seed is None:
        yield
        return
    devices = [device.index or 0] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        # torch.manual_seed would seed every accelerator's generator, and only this device's is put back.
        torch.default_generator.manual_seed(seed)
        if devices:
            with torch.cuda.device(devices[0]):
                torch.cuda.manual_seed(seed)
        yield


def reseed(loader: Any, seed: int) -> None:
    """Set the order of a loader's batches; one without a generator takes the global one."""
    for owner in (loader, getattr(loader, "sampler", None)):
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(seed)


def random_states(device: torch.device) -> tuple[Tensor, ...]:
    """States of the global generators: the CPU's, and the device's when it is a CUDA one."""
    own = (torch.cuda.get_rng_state(device),) if device.type == "cuda" else ()
    return (torch.get_rng_state(), *own)


def set_random_states(states: tuple[Tensor, ...], device: torch.device) -> None:
    """The reverse of ``random_states``; states of a CPU leave a CUDA generator as it is."""
    torch.set_rng_state(states[0])
    if device.type == "cuda" and len(states) > 1:
        torch.cuda.set_rng_state(states[1], device)
