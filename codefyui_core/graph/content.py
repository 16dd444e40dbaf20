"""Nodes and edges out of raw JSON, whatever it holds: what can't be read becomes an issue and is left out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..plugin.values import JsonObject
from .issues import Issue, IssueCode
from .well_known import NOTE, START, TRIGGER_HANDLE, TRIGGER_PORT, TRIGGER_TYPE


class Endpoint(NamedTuple):
    """One port of one node."""

    node: str
    port: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """A node of a document, a preset or a subgraph."""

    id: str
    type: str
    params: JsonObject
    internal_params: Mapping[str, JsonObject]
    """Of a preset's instance: overrides by inner node."""
    bypassed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphEdge:
    """A wire, or a trigger (whose ports say nothing)."""

    source: Endpoint
    target: Endpoint
    trigger: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What one level of a graph holds. Notes and their edges are dropped; ids are unique."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    """Both ends of each are in ``nodes``."""
    issues: tuple[Issue, ...]


def read_content(raw: Mapping[str, Any], owner: str = "The graph") -> Content:
    """``owner`` names the level in messages."""
    reader = _Reader(owner)
    for index, node in enumerate(_items(raw, "nodes")):
        reader.node(index, node)
    for index, edge in enumerate(_items(raw, "edges")):
        reader.edge(index, edge)
    return Content(nodes=tuple(reader.nodes.values()), edges=tuple(reader.edges), issues=tuple(reader.issues))


def node_params(raw: Mapping[str, Any]) -> Any:
    """A graph keeps a node's params in ``data``, a preset beside its type."""
    return node_field(raw, "params")


def node_field(raw: Mapping[str, Any], key: str) -> Any:
    """From ``data``, else from the node itself."""
    data = raw.get("data")
    if isinstance(data, Mapping) and key in data:
        return data[key]
    return raw.get(key)


def _items(raw: Mapping[str, Any], key: str) -> list[Any]:
    value = raw.get(key)
    return list(value) if isinstance(value, list | tuple) else []


def _dict(value: Any) -> JsonObject:
    return dict(value) if isinstance(value, Mapping) else {}


class _Reader:
    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._seen: set[str] = set()
        """Notes included, whose edges are no mistakes."""
        self.nodes: dict[str, GraphNode] = {}
        self.edges: list[GraphEdge] = []
        self.issues: list[Issue] = []

    def node(self, index: int, raw: Any) -> None:
        if not isinstance(raw, Mapping):
            self._bad_node(index, "is no object", None)
            return
        node_id, type_name = raw.get("id"), raw.get("type")
        if not isinstance(node_id, str) or not node_id:
            self._bad_node(index, "has no id", None)
        elif not isinstance(type_name, str) or not type_name:
            self._seen.add(node_id)
            self._bad_node(index, "has no type", node_id)
        elif node_id in self._seen:
            text = f"{self._owner} has two nodes with the id {node_id}; give one of them another."
            self.issues.append(Issue(text, IssueCode.DUPLICATE_ID, node_id))
        else:
            self._seen.add(node_id)
            if type_name != NOTE:
                self.nodes[node_id] = self._read(index, raw, node_id, type_name)

    def _read(self, index: int, raw: Mapping[str, Any], node_id: str, type_name: str) -> GraphNode:
        for key in ("params", "internalParams"):
            if not isinstance(node_field(raw, key), Mapping | None):
                self._bad_node(index, f"has {key} that are no object", node_id)
        if not isinstance(raw.get("data"), Mapping | None):
            self._bad_node(index, "has data that is no object", node_id)
        internal = _dict(node_field(raw, "internalParams"))
        return GraphNode(
            id=node_id,
            type=type_name,
            params=_dict(node_params(raw)),
            internal_params={inner: _dict(values) for inner, values in internal.items()},
            bypassed=node_field(raw, "bypassed") is True,
        )

    def _bad_node(self, index: int, why: str, node_id: str | None) -> None:
        name = node_id or f"number {index + 1}"
        text = f"{self._owner}: node {name} {why}."
        self.issues.append(Issue(text, IssueCode.MALFORMED_NODE, node_id, {"index": index}))

    def edge(self, index: int, raw: Any) -> None:
        if not isinstance(raw, Mapping):
            self._bad_edge(index, "is no object")
            return
        texts = list(_edge_texts(raw))
        if not all(isinstance(text, str) for text in texts) or not (texts[0] and texts[1]):
            self._bad_edge(index, "has no source, no target, or handles that are no text")
            return
        source, target, source_port, target_port, kind = texts
        trigger = self._is_trigger(source, source_port, target_port, kind)
        if self._has_ends(index, source, target, trigger=trigger):
            ends = Endpoint(source, source_port), Endpoint(target, target_port)
            self.edges.append(GraphEdge(source=ends[0], target=ends[1], trigger=trigger))

    def _is_trigger(self, source: str, source_port: str, target_port: str, kind: str) -> bool:
        if kind == TRIGGER_TYPE or target_port == TRIGGER_HANDLE:
            return True
        node = self.nodes.get(source)
        return source_port == TRIGGER_PORT and node is not None and node.type == START

    def _has_ends(self, index: int, source: str, target: str, *, trigger: bool) -> bool:
        """Whether both nodes are there; an edge of a note, or of a node that can't be read, is left out."""
        for end, role in ((source, "source"), (target, "target")):
            if end not in self._seen:
                code = IssueCode(f"{'trigger' if trigger else 'edge'}_{role}_missing")
                other = target if role == "source" else source
                text = f"{self._owner}: an edge has {end} as its {role}, which isn't there; remove the edge."
                details: JsonObject = {"index": index, role: end}
                self.issues.append(Issue(text, code, other if other in self.nodes else None, details))
        return source in self.nodes and target in self.nodes

    def _bad_edge(self, index: int, why: str) -> None:
        text = f"{self._owner}: edge number {index + 1} {why}."
        self.issues.append(Issue(text, IssueCode.MALFORMED_EDGE, None, {"index": index}))


def _edge_texts(raw: Mapping[str, Any]) -> Iterator[Any]:
    for key in ("source", "target", "sourceHandle", "targetHandle", "type"):
        value = raw.get(key)
        yield "" if value is None else value
