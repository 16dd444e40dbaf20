"""Takes bypassed nodes out: each output forwards what comes into the first input that it may stand for."""

from collections.abc import Iterable
from dataclasses import dataclass

from ..plugin.node import NodeDefinition, Port
from .content import Endpoint
from .definitions import Definitions
from .flat import FlatEdge, FlatGraph, Trigger
from .inline import Inlined
from .order import reach
from .ports import joins, ports


@dataclass(frozen=True, slots=True, kw_only=True)
class Bypassed:
    """The graph without them."""

    graph: FlatGraph
    rewired: tuple[FlatEdge, ...]
    """The wires that nobody drew, whose types were never judged."""
    blind: frozenset[Endpoint]
    """Inputs that may be wired to something unknown."""


def remove_bypassed(inlined: Inlined, definitions: Definitions) -> Bypassed:
    """Never raises: an output that forwards nothing leaves its wires out."""
    if not inlined.bypassed:
        graph = FlatGraph(nodes=inlined.nodes, edges=tuple(inlined.edges), triggers=tuple(inlined.triggers))
        return Bypassed(graph=graph, rewired=(), blind=frozenset(inlined.blind))
    forwards = _Forwards(inlined, definitions)
    edges, rewired, blind = [], [], set(inlined.blind)
    for edge in inlined.edges:
        if edge.target in inlined.bypassed:
            continue
        start = forwards.resolve(edge.start)
        if start is None:
            if forwards.unsure:
                blind.add(edge.end)
        elif start == edge.start:
            edges.append(edge)
        else:
            new = FlatEdge(
                source=start.node, source_port=start.port, target=edge.target, target_port=edge.target_port
            )
            edges.append(new)
            rewired.append(new)
    kept = {node_id: node for node_id, node in inlined.nodes.items() if node_id not in inlined.bypassed}
    graph = FlatGraph(nodes=kept, edges=tuple(edges), triggers=tuple(_triggers(inlined)))
    return Bypassed(graph=graph, rewired=tuple(rewired), blind=frozenset(blind))


def forwarded_input(definition: NodeDefinition, inputs: Iterable[Port], output: Port) -> str | None:
    """The first declared input whose values fit the output. An input that stands in for the param of its
    name (the selector of a Switch) steers the node, and is passed over.
    """
    steering = {param.name for param in definition.params}
    fitting = (port.name for port in inputs if port.name not in steering and joins(port.type, output.type))
    return next(fitting, None)


class _Forwards:
    def __init__(self, inlined: Inlined, definitions: Definitions) -> None:
        self._inlined = inlined
        self._definitions = definitions
        self._source = {edge.end: edge.start for edge in inlined.edges}
        self._known: dict[Endpoint, Endpoint | None] = {}
        self.unsure = bool(inlined.blind)
        """What forwards nothing may do so because something is unknown, which is an issue already."""

    def resolve(self, output: Endpoint) -> Endpoint | None:
        """The output of a node that stays; None when nothing comes in, or only what goes out again."""
        passed: list[Endpoint] = []
        current: Endpoint | None = output
        while current is not None and current.node in self._inlined.bypassed:
            if current in self._known:
                current = self._known[current]
                break
            self._known[current] = None
            passed.append(current)
            current = self._step(current)
        for step in passed:
            self._known[step] = current
        return current

    def _step(self, output: Endpoint) -> Endpoint | None:
        node = self._inlined.nodes[output.node]
        definition = self._definitions.find(node.type)
        if definition is None:
            self.unsure = True
            return None
        inputs, outputs = ports(definition, node.params)
        declared = next((port for port in outputs if port.name == output.port), None)
        through = None if declared is None else forwarded_input(definition, inputs, declared)
        return None if through is None else self._source.get(Endpoint(node.id, through))


def _triggers(inlined: Inlined) -> Iterable[Trigger]:
    """A trigger of a bypassed node starts what the node feeds."""
    following: dict[str, list[str]] = {}
    for edge in inlined.edges:
        following.setdefault(edge.source, []).append(edge.target)
    through = {node: following.get(node, []) for node in inlined.bypassed}
    targets: dict[str, list[str]] = {}
    for trigger in inlined.triggers:
        if trigger.source not in inlined.bypassed:
            targets.setdefault(trigger.source, []).append(trigger.target)
    return [
        Trigger(source=source, target=target)
        for source, first in targets.items()
        for target in sorted(reach(first, through) - inlined.bypassed)
    ]
