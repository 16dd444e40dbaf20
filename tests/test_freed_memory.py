"""Buffers that come and go."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from codefyui_core.freed_memory import keep_freed_memory
keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for turn in range(20):
    if turn == 10:
        before = faults()
    buffers = [b"x" * int(sys.argv[1]) for _ in range(8)]
    del buffers
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc")
@pytest.mark.parametrize("n_bytes", [256 * 1024, 1024 * 1024])
def test_buffers_of_bodies_get_the_memory_of_those_before_them(n_bytes: int) -> None:
    command = [sys.executable, "-c", PROGRAM, str(n_bytes)]
    said = subprocess.run(command, check=True, capture_output=True, text=True)
    pages = 8 * n_bytes // 4096
    assert int(said.stdout) < pages, "ten rounds cost fewer faults than one round has pages"
