"""``python -m benchmarks [NAME ...]``: measure, print, write down."""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from .measure import Row
from .plan import Effort
from .report import document, machine, table, write

NAMES = (
    *("engine-overhead", "events", "drain", "fleet", "dead-line", "queue", "memory", "start", "first-node"),
    *("transfer", "s3", "files"),
)
RESULTS = Path(__file__).parent / "results"


def main(argv: Sequence[str] | None = None) -> int:
    ask = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    ask.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all without one")
    ask.add_argument("--json", action="store_true", help="print JSON, one line")
    ask.add_argument("--quick", action="store_true", help="little work: do the benchmarks work at all?")
    ask.add_argument("--results", type=Path, default=RESULTS, help="the folder for the JSON file")
    given = ask.parse_args(argv)
    unknown = [name for name in given.names if name not in NAMES]
    if unknown:
        ask.error(f"no benchmark is named {unknown[0]}; there are {', '.join(NAMES)}")
    names = given.names or NAMES
    facts = machine()
    rows = [row for name in names for row in measured(name, quick=given.quick)]
    found = document(names, rows, facts, quick=given.quick)
    path = write(given.results, found)
    print(json.dumps(found) if given.json else f"{table(rows)}\n\n{path}")
    return 0


def measured(name: str, *, quick: bool) -> list[Row]:
    """The rows of one benchmark. Each is a module with ``rows(effort)``."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    rows: Callable[[Effort], list[Row]] = import_module(f"{__package__}.{name.replace('-', '_')}").rows
    with tempfile.TemporaryDirectory(prefix="cdui-bench-") as folder:
        found = rows(Effort(quick=quick, folder=Path(folder)))
    return [row.aiming() for row in found] if quick else found


if __name__ == "__main__":
    sys.exit(main())
