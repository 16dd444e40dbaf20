"""Fixtures for tests of plugins. Use them by ``pytest_plugins = ["codefyui_core.testing.fixtures"]`` in the
``conftest.py`` at the top.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from codefyui_core.loading import Registry, load

from .clock import ManualClock
from .distributions import FakeSite
from .ids import CountingIds


@pytest.fixture
def clock() -> ManualClock:
    """Time that stands still until the test moves it."""
    return ManualClock()


@pytest.fixture
def ids() -> CountingIds:
    """A source of ids in a known order."""
    return CountingIds()


@pytest.fixture
def registry() -> Registry:
    """What is installed here, as neither plane."""
    return load(plane=None)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSite]:
    """A folder for fake distributions, first on ``sys.path``; their modules are forgotten afterwards."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield FakeSite(folder=folder)
    for name in set(sys.modules) - before:
        origin = getattr(sys.modules[name], "__file__", None)
        if origin is not None and Path(origin).is_relative_to(folder):
            del sys.modules[name]
