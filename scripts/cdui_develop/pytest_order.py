"""Which modules go first where several workers share the tests: those that take longest, so that no worker is left with
them while the others are idle.
"""

from collections import Counter

import pytest

LONG = (
    "tests/faults/",
    "tests/control/api/test_described_api.py",
    "tests/e2e/",
    "tests/benchmarks/",
    "tests/web/",
    "tests/plugin/",
    "tests/launcher/",
    "tests/runner/",
    "tests/docs/",
    "tests/test_portable_imports.py",
)
"""Rooms and modules whose tests start whole systems or processes, the longest first. The rest is short, whatever its
number of tests.
"""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items[:] = in_order(items)


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """By room, then by number of tests; those of a module stay together and in their order."""
    size = Counter(map(_module, items))
    return sorted(items, key=lambda item: (_rank(item), -size[_module(item)], _module(item)))


def _rank(item: pytest.Item) -> int:
    return next((rank for rank, room in enumerate(LONG) if item.nodeid.startswith(room)), len(LONG))


def _module(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
