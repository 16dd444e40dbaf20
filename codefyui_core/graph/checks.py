"""The checks of plain nodes and of the wires between them, once groups are expanded."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..plugin.node import DataType, NodeDefinition, Port
from .bypass import Bypassed
from .content import Endpoint
from .definitions import Definitions
from .flat import FlatEdge, FlatNode, Trigger
from .inline import Inlined, issue_at
from .issues import Issue, IssueCode
from .param_values import check_params
from .plan import unknown_type
from .ports import joins, ports
from .switches import check_switches, output_types, switches


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A node whose type is installed."""

    node: FlatNode
    definition: NodeDefinition
    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]


def check_inlined(inlined: Inlined, bypassed: Bypassed, definitions: Definitions) -> list[Issue]:
    """All that doesn't depend on what is started."""
    checks = _Checks(inlined, bypassed, definitions)
    return [*checks.nodes(), *checks.wires(), *checks.triggers(), *checks.without_bypassed()]


class _Checks:
    def __init__(self, inlined: Inlined, bypassed: Bypassed, definitions: Definitions) -> None:
        self._inlined = inlined
        self._bypassed = bypassed
        self._definitions = definitions
        self._known = {node.id: known for node in inlined.nodes.values() if (known := self._know(node))}
        self._declared = {
            Endpoint(known.node.id, name): str(port.type)
            for known in self._known.values()
            for name, port in known.outputs.items()
        }

    def _know(self, node: FlatNode) -> _Known | None:
        definition = self._definitions.find(node.type)
        if definition is None:
            return None
        inputs, outputs = ports(definition, node.params)
        return _Known(
            node=node,
            definition=definition,
            inputs={port.name: port for port in inputs},
            outputs={port.name: port for port in outputs},
        )

    def nodes(self) -> Iterable[Issue]:
        """Types, and params of those that aren't bypassed."""
        for node in self._inlined.nodes.values():
            known = self._known.get(node.id)
            if known is None:
                yield unknown_type(node)
            elif node.id not in self._inlined.bypassed:
                for found in check_params(node.id, known.definition, node.params):
                    yield issue_at(
                        found.message, IssueCode(found.code), node.container, node.id, found.params
                    )

    def wires(self) -> Iterable[Issue]:
        """Ports, types, and two wires into one input, as drawn."""
        taken: set[Endpoint] = set()
        for edge in self._inlined.edges:
            yield from self._check_ports(edge)
            if edge.end in taken:
                yield self._wired_twice(edge)
            taken.add(edge.end)
        yield from self._check_types(
            self._inlined.edges, self._types(self._inlined.nodes, self._inlined.edges)
        )

    def triggers(self) -> Iterable[Issue]:
        """A trigger comes from a node that has one."""
        for trigger in self._inlined.triggers:
            source = self._known.get(trigger.source)
            if source is not None and not _can_trigger(source):
                yield self._no_trigger(trigger, source)

    def without_bypassed(self) -> Iterable[Issue]:
        """What is judged by the wires that are left: required inputs, forwarded types, switches."""
        graph, blind = self._bypassed.graph, self._bypassed.blind
        types = self._types(graph.nodes, graph.edges)
        yield from self._check_types(self._bypassed.rewired, types)
        found = switches(graph.nodes.values(), self._definitions)
        yield from check_switches(found, graph.edges, types, blind)
        optional = {Endpoint(node_id, port) for node_id, switch in found.items() for port in switch.inputs}
        wired = {edge.end for edge in graph.edges} | blind | optional
        for node_id in graph.nodes:
            if (known := self._known.get(node_id)) is not None:
                yield from self._check_required(known, wired)

    def _types(self, nodes: Mapping[str, FlatNode], edges: Iterable[FlatEdge]) -> dict[Endpoint, str]:
        types = dict(self._declared)
        output_types(switches(nodes.values(), self._definitions), edges, types)
        return types

    def _check_ports(self, edge: FlatEdge) -> Iterable[Issue]:
        source, target = self._known.get(edge.source), self._known.get(edge.target)
        if source is not None and edge.source_port not in source.outputs:
            yield _no_port(source, "output", edge.source_port, source.outputs)
        if target is not None and edge.target_port not in target.inputs:
            yield _no_port(target, "input", edge.target_port, target.inputs)

    def _check_types(self, edges: Iterable[FlatEdge], types: Mapping[Endpoint, str]) -> Iterable[Issue]:
        for edge in edges:
            target = self._known.get(edge.target)
            source_type = types.get(edge.start)
            port = None if target is None else target.inputs.get(edge.target_port)
            if target is None or port is None or source_type is None or joins(source_type, port.type):
                continue
            yield issue_at(
                f"{edge.source}.{edge.source_port} gives {source_type}, but "
                f"{edge.target}.{edge.target_port} takes {port.type}; convert it or wire another output.",
                IssueCode.TYPE_MISMATCH,
                target.node.container,
                edge.target,
                {
                    "source": edge.source,
                    "source_port": edge.source_port,
                    "source_type": source_type,
                    "target": edge.target,
                    "target_port": edge.target_port,
                    "target_type": str(port.type),
                },
            )

    def _check_required(self, known: _Known, wired: set[Endpoint] | frozenset[Endpoint]) -> Iterable[Issue]:
        standing_in = {param.name for param in known.definition.params}
        for name, port in known.inputs.items():
            if port.optional or name in standing_in or Endpoint(known.node.id, name) in wired:
                continue
            yield issue_at(
                f"Node {known.node.id} ({known.definition.type}) needs its input {name}; wire it.",
                IssueCode.MISSING_INPUT,
                known.node.container,
                known.node.id,
                {"port": name, "type": str(port.type)},
            )

    def _wired_twice(self, edge: FlatEdge) -> Issue:
        node = self._inlined.nodes[edge.target]
        text = f"Input {edge.target_port} of node {edge.target} has two wires; remove one of them."
        code = IssueCode.INPUT_WIRED_TWICE
        return issue_at(text, code, node.container, node.id, {"port": edge.target_port})

    def _no_trigger(self, trigger: Trigger, source: _Known) -> Issue:
        text = (
            f"Node {trigger.source} ({source.definition.type}) starts nothing; draw the trigger from a Start."
        )
        details = {"target": trigger.target}
        code = IssueCode.INVALID_OUTPUT_PORT
        return issue_at(text, code, source.node.container, source.node.id, details)


def _can_trigger(known: _Known) -> bool:
    return any(port.type == DataType.TRIGGER for port in known.outputs.values())


def _no_port(known: _Known, side: str, name: str, ports_there: Iterable[str]) -> Issue:
    there = list(ports_there)
    return issue_at(
        f"Node {known.node.id} ({known.definition.type}) has no {side} called {name!r}; "
        f"it has {', '.join(there) or 'none'}.",
        IssueCode(f"invalid_{side}_port"),
        known.node.container,
        known.node.id,
        {"port": name, "ports": list(there)},
    )
