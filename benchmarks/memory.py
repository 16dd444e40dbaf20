"""How much an idle control plane and an idle agent hold, beside an interpreter that imported aiohttp."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from . import chatter
from .measure import Aim, Row
from .plan import Effort
from .processes import site

LIMITS_MB = {"control plane": 120, "agent": 80}
MB = 1_000_000
_SETTLED_S = 2.0
"""Between being ready and being idle: what a start needed is given back."""


def rows(effort: Effort) -> list[Row]:
    found: dict[str, list[float]] = {name: [] for name in LIMITS_MB}
    baseline: list[float] = []
    light = (
        chatter.LIGHT if effort.quick else {}
    )  # the helpers' imports of torch would be nearly all of the work
    for turn in range(effort.choose(3, 1)):
        with bare() as pid:
            baseline.append(megabytes(pid))
        with site(effort.folder / str(turn), CODEFYUI_RUN_ZYGOTE="0", **light) as made:
            server, agent = made.start_server(), made.start_agent()
            time.sleep(_SETTLED_S)
            for name, process in (("control plane", server), ("agent", agent)):
                found[name].append(megabytes(process.pid))
    return [_row(name, samples, baseline) for name, samples in found.items()]


def _row(name: str, samples: list[float], baseline: list[float]) -> Row:
    row = Row(
        benchmark="memory",
        figure=f"an idle {name}, without its zygote",
        unit="MB",
        samples=samples,
        baseline="an interpreter with aiohttp",
        baseline_samples=baseline,
    )
    limit = LIMITS_MB[name]
    return row.aiming(
        Aim(text=f"{name} under {limit} MB", reached=f"{row.median:.0f} MB", met=row.median < limit)
    )


@contextmanager
def bare() -> Iterator[int]:
    """The pid of an interpreter that has imported aiohttp and waits."""
    code = "import aiohttp, sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        try:
            yield child.pid
        finally:
            child.stdin.close()


def megabytes(pid: int) -> float:
    """The resident set size. What is shared with other processes counts in full, whoever runs beside."""
    return psutil.Process(pid).memory_info().rss / MB
