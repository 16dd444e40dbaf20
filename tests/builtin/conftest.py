"""Shared by the tests of what the core brings."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from codefyui_core.plugin import Node
from codefyui_core.testing.node_context import RecordingContext, execute


@pytest.fixture
def context(tmp_path: Path) -> RecordingContext:
    return RecordingContext(root=tmp_path)


@pytest.fixture
def run(context: RecordingContext) -> Callable[..., Mapping[str, Any]]:
    """Execute a node with inputs and params, defaults filled in."""

    def run_node(
        node: type[Node], wired: Mapping[str, Any] | None = None, /, **params: Any
    ) -> Mapping[str, Any]:
        return execute(node, wired, context, **params)

    return run_node
