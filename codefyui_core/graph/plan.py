"""Which nodes run, and in what order."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from ..plugin.node import NodeDefinition, Port
from ..plugin.values import JsonObject
from .definitions import Definitions
from .flat import FlatGraph, FlatNode
from .inline import issue_at
from .issues import GraphInvalid, Issue, IssueCode
from .order import levels, reach
from .param_values import complete
from .ports import ports


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The output that an input is wired to."""

    node_id: str
    port: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNode:
    """A node to execute."""

    id: str
    type: str
    """The definition's, which a bare name in the document may stand for."""
    definition: NodeDefinition
    params: JsonObject
    """Complete: what the graph gives, else the defaults."""
    inputs: Mapping[str, Source]
    """The wired ones, by port."""
    outputs: tuple[str, ...]
    input_ports: tuple[Port, ...]
    container: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Levels of nodes; each node needs only nodes of earlier levels."""

    levels: tuple[tuple[str, ...], ...]
    nodes: Mapping[str, PlanNode]


def plan(flat: FlatGraph, definitions: Definitions) -> Plan:
    """Raises: GraphInvalid when nothing is started, for a cycle among the nodes that run, or for an unknown
    type there.
    """
    chosen = executable(flat)
    if not chosen:
        raise GraphInvalid([no_entry_points()])
    return plan_of(flat, [node for node in flat.nodes if node in chosen], definitions)


def plan_of(flat: FlatGraph, chosen: Iterable[str], definitions: Definitions) -> Plan:
    """The plan for chosen nodes, in the order given."""
    ids = dict.fromkeys(chosen)
    edges = [edge for edge in flat.edges if edge.source in ids and edge.target in ids]
    found, cycle = levels(ids, ((edge.source, edge.target) for edge in edges))
    if cycle:
        raise GraphInvalid([cycle_issue(cycle, flat)])
    wired: dict[str, dict[str, Source]] = {node: {} for node in ids}
    for edge in edges:
        wired[edge.target][edge.target_port] = Source(node_id=edge.source, port=edge.source_port)
    nodes = {node: _plan_node(flat.nodes[node], wired[node], definitions) for node in ids}
    return Plan(levels=found, nodes=nodes)


def executable(flat: FlatGraph) -> frozenset[str]:
    """The Start rule. What a trigger starts runs, with all that follows it along the wires; then whatever
    feeds one of these, until nothing is missing. A preset or subgraph always runs as a whole. Empty: nothing
    is started.
    """
    entries: set[Hashable] = {trigger.target for trigger in flat.triggers if trigger.target in flat.nodes}
    after, before = _neighbours(flat)
    found = reach(reach(entries, after), before)
    starts = {trigger.source for trigger in flat.triggers if trigger.target in found}
    return frozenset(node for node in flat.nodes if node in found or node in starts)


def _neighbours(flat: FlatGraph) -> tuple[dict[Hashable, list[Hashable]], dict[Hashable, list[Hashable]]]:
    """What follows and what feeds each node. A container joins its nodes in both, as if they were one."""
    after: dict[Hashable, list[Hashable]] = {}
    before: dict[Hashable, list[Hashable]] = {}
    for edge in flat.edges:
        after.setdefault(edge.source, []).append(edge.target)
        before.setdefault(edge.target, []).append(edge.source)
    for node in flat.nodes.values():
        if node.container is not None:
            hub = ("container", node.container)
            for towards in (after, before):
                towards.setdefault(node.id, []).append(hub)
                towards.setdefault(hub, []).append(node.id)
    return after, before


def no_entry_points() -> Issue:
    text = "Nothing would run: draw a trigger edge from a Start node to the node to begin with."
    return Issue(text, IssueCode.NO_ENTRY_POINTS)


def cycle_issue(cycle: list[str], flat: FlatGraph) -> Issue:
    """``cycle`` is closed."""
    path = " -> ".join(cycle if len(cycle) <= 12 else [*cycle[:10], "…", cycle[-1]])
    first = flat.nodes[cycle[0]]
    text = f"The wires lead in a circle: {path}. Remove one of them."
    return issue_at(text, IssueCode.CYCLE, first.container, first.id, {"path": list(cycle)})


def _plan_node(node: FlatNode, wired: Mapping[str, Source], definitions: Definitions) -> PlanNode:
    definition = definitions.find(node.type)
    if definition is None:
        raise GraphInvalid([unknown_type(node)])
    params = complete(definition, node.params)
    inputs, outputs = ports(definition, params)
    return PlanNode(
        id=node.id,
        type=definition.type,
        definition=definition,
        params=params,
        inputs=wired,
        outputs=tuple(port.name for port in outputs),
        input_ports=inputs,
        container=node.container,
    )


def unknown_type(node: FlatNode) -> Issue:
    text = f"Node {node.id} is of the type {node.type}, which isn't installed; install its pack or remove it."
    return issue_at(text, IssueCode.UNKNOWN_NODE_TYPE, node.container, node.id, {"type": node.type})
