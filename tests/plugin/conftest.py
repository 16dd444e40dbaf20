"""Plugins as the documentation has them."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from codefyui_core.loading import Registry, load
from codefyui_core.testing.distributions import FakeSite

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def docs() -> Path:
    return DOCS


@pytest.fixture
def documented(site: FakeSite) -> Callable[[str], Registry]:
    """Install the example on a hook's page as the distribution ``documented`` and load it, alone."""

    def load_example(hook: str) -> Registry:
        (source,) = _BLOCK.findall((DOCS / "hooks" / f"{hook}.md").read_text(encoding="utf-8"))
        site.install("documented", source)
        registry = load(plane=None, entry_points=site.entry_points())
        assert [(info.error, info.hooks) for info in registry.plugins] == [("", (hook,))]
        return registry

    return load_example
