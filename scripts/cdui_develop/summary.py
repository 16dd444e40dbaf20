"""Adds up the closing lines of several pytest runs into one of the same form."""

import re
from collections import Counter
from collections.abc import Iterable

_COUNT = re.compile(r"(\d+) (failed|passed|skipped|deselected|xfailed|xpassed|warnings?|errors?|rerun)\b")
_SHOWN = ("failed", "passed", "skipped", "xfailed", "xpassed", "errors", "rerun")


def counts(line: str) -> Counter[str]:
    """``== 2 failed, 30 passed in 1.2s ==`` -> its numbers; "error" counts as "errors"."""
    found: Counter[str] = Counter()
    for number, kind in _COUNT.findall(line):
        found[{"error": "errors", "warning": "warnings"}.get(kind, kind)] += int(number)
    return found


def ran(line: str) -> int:
    """How many tests a closing line speaks of, each once; 0 for a line of another kind."""
    found = counts(line)
    return found.total() - found["deselected"] - found["warnings"] - found["rerun"]


def summary(lines: Iterable[str], seconds: float) -> str:
    """One closing line for all runs."""
    total: Counter[str] = Counter()
    for line in lines:
        total += counts(line)
    shown = ", ".join(f"{total[kind]} {kind}" for kind in _SHOWN if total[kind])
    return f"===== {shown or 'no tests ran'} in {seconds:.2f}s ====="
