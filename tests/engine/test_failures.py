"""Which cause an error has, by its class wherever it stands in the chain."""

import errno

import pytest
import torch

from codefyui_core.engine.failures import cause_of
from codefyui_core.errors import CodefyError, ProcessKilled

FROM_TORCH = "[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried ..."


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), "cuda_oom"),
        (torch.cuda.OutOfMemoryError("CUDA out of memory"), "cuda_oom"),
        (RuntimeError("CUDA error: out of memory\nCompile with TORCH_USE_CUDA_DSA"), "cuda_oom"),
        (RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"), "cuda_oom"),
        (MemoryError(), "host_oom"),
        (RuntimeError(FROM_TORCH), "host_oom"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "host_oom"),
        (OSError(errno.ENOSPC, "No space left on device"), "disk_full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "disk_full"),
        (OSError(errno.EACCES, "Permission denied"), "user_code"),
        (ProcessKilled("a worker was killed", signal=9), "signal"),
        (RuntimeError("out of memory of what this model learned"), "user_code"),
        (ValueError("CUDA error: out of memory"), "user_code"),
    ],
)
def test_an_error_has_the_cause_of_its_class_also_below_another(error, cause):
    assert cause_of(error) == cause
    wrapped = CodefyError("it didn't work")
    wrapped.__cause__ = error
    assert cause_of(wrapped) == cause
    outer = ValueError("once more")
    outer.__context__ = wrapped
    assert cause_of(outer) == cause
