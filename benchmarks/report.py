"""What a run of the benchmarks leaves behind: a table for people, a JSON file for programs."""

import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from .measure import Row, spread

HEADINGS = ("BENCHMARK", "FIGURE", "MEDIAN", "SPREAD", "BASELINE", "MEDIAN", "SPREAD", "RATIO")


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "load_before": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "python": sys.version.split()[0],
        "torch": version("torch"),
        "codefyui": version("codefyui-core"),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def document(
    names: Sequence[str], rows: Sequence[Row], facts: dict[str, Any], *, quick: bool
) -> dict[str, Any]:
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "benchmarks": list(names),
        "quick": quick,
        "machine": facts,
        "rows": [row.to_json() for row in rows],
    }


def write(folder: Path, found: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    stamp = found["at"].replace("-", "").replace(":", "")
    path = folder / f"{stamp}-{os.getpid()}.json"
    path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return path


def table(rows: Sequence[Row]) -> str:
    """Aligned columns, and below them each aim with what was reached."""
    lines = [HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    aims = [
        f"{'met   ' if aim.met else 'MISSED'}  {row.benchmark}: {aim.text}: {aim.reached}"
        for row in rows
        for aim in row.aims
    ]
    return "\n".join([*text, "", *aims])


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.benchmark,
        row.figure,
        f"{shown(row.median)} {row.unit}",
        f"±{spread(row.samples):.0%}",
        row.baseline,
        f"{shown(row.baseline_median)} {row.unit}",
        f"±{spread(row.baseline_samples):.0%}",
        f"x {shown(row.ratio)}",
    )


def shown(value: float) -> str:
    """Three significant digits, no exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
