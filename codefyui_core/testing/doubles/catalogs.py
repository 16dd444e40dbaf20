"""Node catalogs that fail in one known way each."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from codefyui_core.plugin import CatalogProblem, Node, NodeCatalog, NodeContext


class NoOp(Node):
    """A node that does nothing."""

    type = "NoOp"
    category = "Test"
    description = "Does nothing."

    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        return {}


class HalfCatalog(NodeCatalog):
    """One node, and one source that gave none."""

    name = "half"
    title = "Half"

    def nodes(self) -> Iterator[type[Node] | CatalogProblem]:
        yield NoOp
        yield CatalogProblem(source="half.py", message="can't be imported")


class CrashingCatalog(NodeCatalog):
    """One node, then an exception."""

    name = "crashing"
    title = "Crashing"

    def nodes(self) -> Iterator[type[Node] | CatalogProblem]:
        yield NoOp
        raise RuntimeError("a bug in the pack")


class EndingCatalog(NodeCatalog):
    """Ends the process that asks it, as a crash in a vendor library would. Not for the test's own process."""

    name = "ending"
    title = "Ending"
    status = 3

    def nodes(self) -> Iterator[type[Node] | CatalogProblem]:
        os._exit(self.status)
        yield NoOp
