"""Search with budgets of one's own: ``python -m model cuts=1 crashes=1 runs=2``, in ``tests/runs``.

Also ``agents``, ``events`` and ``grace_s``; ``off=START_GATE`` switches a rule off.
"""

import sys

from .rules import Rule
from .search import Configuration, Search
from .world import Faults


def main(arguments: list[str]) -> int:
    given = dict(argument.split("=", 1) for argument in arguments)
    off = frozenset(Rule[name] for name in given.pop("off", "").split(",") if name)
    grace_s = float(given.pop("grace_s", "300"))
    numbers = {name: int(value) for name, value in given.items()}
    size = {name: numbers.pop(name) for name in ("runs", "agents", "events") if name in numbers}
    configuration = Configuration(faults=Faults(**numbers), grace_s=grace_s, **size)
    found = Search(configuration, off).run()
    print(found)
    return 0 if found.violation is None else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
