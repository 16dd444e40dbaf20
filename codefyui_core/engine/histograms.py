"""Statistics of an array: how its numbers are spread. With numpy, in the process of the run."""

import math
import sys
from typing import Any

from codefyui_core.plugin.values import JsonObject

from .numbers import plain

BINS = 64


def measured(array: Any, sample_from: int, sample_size: int) -> JsonObject | None:
    """Counts, moments, and a histogram of 64 bins, or how often each value occurs when few do. Of an array with
    more than ``sample_from`` elements, about ``sample_size`` at equal steps are measured, and ``sampled`` says
    how many. None for complex numbers and for no elements.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None or array.size == 0 or array.dtype.kind not in "biuf":
        return None
    flat = array.reshape(-1)
    stats: JsonObject = {"count": int(array.size), "sampled": None}
    if array.size > sample_from:
        flat = flat[:: max(1, math.ceil(array.size / sample_size))]
        stats["sampled"] = int(flat.size)
    finite = flat[numpy.isfinite(flat)] if flat.dtype.kind == "f" else flat
    stats |= {
        "nan": int(numpy.isnan(flat).sum()) if flat.dtype.kind == "f" else 0,
        "infinite": 0 if flat.dtype.kind != "f" else int(numpy.isinf(flat).sum()),
        "zeros": int((flat == 0).sum()),
    }
    with numpy.errstate(all="ignore"):  # what overflows reads as infinite
        return stats | (_moments(finite) | _spread(finite) if finite.size else {})


def _moments(finite: Any) -> JsonObject:
    wide = finite.astype("float64")
    return {
        "min": plain(finite.min()),
        "max": plain(finite.max()),
        "mean": plain(float(wide.mean())),
        "std": plain(float(wide.std())),
    }


def _spread(finite: Any) -> JsonObject:
    """Whole numbers of few values are counted; the bins of all others are of one width."""
    numpy = sys.modules["numpy"]
    if finite.dtype.kind in "biu":
        values, counts = numpy.unique(finite, return_counts=True)
        if len(values) <= BINS:
            pairs = zip(values.tolist(), counts.tolist(), strict=True)
            return {"values": [[value, count] for value, count in pairs]}
    wide = finite.astype("float64")
    low, high = float(wide.min()), float(wide.max())
    if not math.isfinite(high - low):  # the width of a bin couldn't be told
        return {}
    counts, edges = numpy.histogram(wide, bins=BINS, range=(low, high))
    return {"histogram": {"low": float(edges[0]), "high": float(edges[-1]), "counts": counts.tolist()}}
