"""A graph without groups: what expansion makes, and what is planned."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..plugin.values import JsonObject
from .content import Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatNode:
    """A plain node, with the params that its graph gives."""

    id: str
    type: str
    """As the document has it."""
    params: JsonObject
    container: str | None
    """The outermost preset or subgraph instance in the submitted document that it came from."""

    @property
    def shown_id(self) -> str:
        """The node of the submitted document that a person knows."""
        return self.container or self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatEdge:
    """A data wire."""

    source: str
    source_port: str
    target: str
    target_port: str

    @property
    def start(self) -> Endpoint:
        return Endpoint(self.source, self.source_port)

    @property
    def end(self) -> Endpoint:
        return Endpoint(self.target, self.target_port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """Makes its target an entry point."""

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatGraph:
    """In the order of the document."""

    nodes: Mapping[str, FlatNode]
    edges: tuple[FlatEdge, ...]
    triggers: tuple[Trigger, ...]
