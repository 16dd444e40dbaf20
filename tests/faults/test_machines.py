"""Machines of a schedule: their disks fill up, their clocks are stepped, and what wasn't synced is lost."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdui_faults.machines import DISK_BYTES, STEP_S, Machine, Means


@pytest.fixture
def means(tmp_path: Path) -> Means:
    return Means.find(tmp_path)


@pytest.fixture
def machine(tmp_path: Path, means: Means) -> Iterator[Machine]:
    made = Machine("box", tmp_path, means)
    yield made
    made.close()


def python(machine: Machine, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=machine.user_data,
        env={**os.environ, **machine.environ},
    )
    return done.stdout


def needs(there: object, what: str) -> None:
    if not there:
        pytest.skip(f"this system hasn't {what}; schedules leave out what needs it and say so")


@pytest.mark.parametrize(("step_s", "hours"), [(STEP_S, 1), (-STEP_S, -1), (0, 0)])
def test_a_step_moves_the_wall_clock_of_its_processes_and_no_other_clock(
    machine: Machine, means: Means, step_s: int, hours: int
) -> None:
    needs(means.shim, "a C compiler")
    machine.step(step_s)
    before, ticked = time.time(), time.monotonic()
    wall, monotonic = python(machine, "import time; print(time.time(), time.monotonic())").split()
    assert round((float(wall) - before) / 3600) == hours
    assert ticked <= float(monotonic) <= time.monotonic()


def test_a_power_loss_keeps_what_was_synced(machine: Machine, means: Means) -> None:
    needs(means.shim, "a C compiler")
    code = """
import os
with open("file", "wb", buffering=0) as file:
    file.write(b"synced")
    os.fsync(file.fileno())
    file.write(b" and not")
open("never", "w").write("synced")
"""
    python(machine, code)
    lost = machine.lose_unsynced(random.Random(1))
    assert (machine.user_data / "file").read_bytes().startswith(b"synced")
    assert (
        lost
        == 8
        + 6
        - (machine.user_data / "file").stat().st_size
        + 6
        - (machine.user_data / "never").stat().st_size
    )
    machine.lose_unsynced(random.Random(2))
    machine.lose_unsynced(random.Random(3))
    assert (machine.user_data / "file").read_bytes() == b"synced"
    assert (machine.user_data / "never").read_bytes() == b""


def test_a_full_disk_takes_nothing_until_it_is_freed_and_its_files_stay(
    machine: Machine, means: Means
) -> None:
    needs(means.disks, "the right to mount")
    (machine.user_data / "before").write_bytes(b"x" * 10_000)
    machine.fill()
    with pytest.raises(OSError, match="No space left"):
        (machine.user_data / "more").write_bytes(b"x" * 100_000)
    machine.free()
    (machine.user_data / "more").write_bytes(b"x" * 100_000)
    usage = os.statvfs(machine.user_data)
    assert usage.f_blocks * usage.f_frsize == DISK_BYTES
    machine.close()  # keeps what was on it
    assert (machine.user_data / "before").stat().st_size == 10_000
