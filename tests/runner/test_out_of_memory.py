"""The kernel's own out-of-memory killer, in a control group with little memory."""

import asyncio
import json
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from codefyui_core.runner import cgroups

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux's")
LIMIT_BYTES = 192 << 20


def _made(folder, limit):
    folder.mkdir()
    try:
        (folder / limit).write_text(str(LIMIT_BYTES))
    except OSError:
        folder.rmdir()
        raise
    return folder


@pytest.fixture
def small_group():
    """For a supervisor with all its runs. Of whichever hierarchy has the memory controller here."""
    name = f"cdui-test-{os.getpid()}"
    made = None
    for parent, limit in (
        (cgroups.own_group(), "memory.max"),
        (cgroups.old_memory_group(), "memory.limit_in_bytes"),
    ):
        if parent is not None and made is None:
            with suppress(OSError):
                made = _made(parent / name, limit)
    if made is None:
        pytest.skip("no control group with a memory limit can be made here: that takes root, or delegation")
    yield made
    made.rmdir()


@pytest.mark.parametrize("do", ["eats_memory", "child_eats_memory"])
@pytest.mark.point(21)
async def test_a_process_that_the_kernel_ended_for_memory_is_told_from_one_that_was_killed(
    bench, small_group, do
):
    owner = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).parent / "behaviors" / "owner.py"),
        json.dumps(
            {
                "folder": str(bench.folder),
                "do": do,
                "zygote": False,
                "group": str(small_group),
                "bytes": 2 * LIMIT_BYTES,
            }
        ),
        stdout=asyncio.subprocess.PIPE,
    )
    said = json.loads((await owner.communicate())[0])
    assert said["out_of_memory"] is True
    assert said["signal"] == (9 if do == "eats_memory" else None)
    assert said["killed"]["out_of_memory"] is False
    assert said["killed"]["signal"] == 9
