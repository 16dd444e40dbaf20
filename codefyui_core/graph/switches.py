"""The rules of Switch, the one node whose wires depend on a value: it passes one of its inputs on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from ..plugin.node import DataType, NodeDefinition, ParamKind
from .content import Endpoint
from .definitions import Definitions
from .flat import FlatEdge, FlatNode
from .inline import issue_at
from .issues import Issue, IssueCode
from .order import levels
from .param_values import complete
from .ports import ports, repeat_count, repeated
from .well_known import SWITCH

_FEW_SHOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """One Switch node."""

    node: FlatNode
    selector: str
    """A param, and the input that stands in for it when wired."""
    selected: JsonValue
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def as_switch(node: FlatNode, definition: NodeDefinition | None) -> Switch | None:
    """What the definition says by its shape: the input beside the repeated ones that has the name of an
    integer param selects. None for every other type.
    """
    if definition is None or definition.type != SWITCH:
        return None
    params = complete(definition, node.params)
    numbers = {param.name for param in definition.params if param.kind is ParamKind.INT}
    selector = next((port.name for port in definition.inputs if port.name in numbers), None)
    pattern = next((port for port in definition.inputs if port.repeat is not None), None)
    if selector is None or pattern is None or pattern.repeat is None:
        return None
    count = repeat_count(pattern.repeat, definition, params)
    return Switch(
        node=node,
        selector=selector,
        selected=params[selector],
        inputs=tuple(port.name for port in repeated(pattern, pattern.repeat, count)),
        outputs=tuple(port.name for port in ports(definition, params)[1]),
    )


def switches(nodes: Iterable[FlatNode], definitions: Definitions) -> dict[str, Switch]:
    """All of a graph, by node id."""
    found = (as_switch(node, definitions.find(node.type)) for node in nodes)
    return {switch.node.id: switch for switch in found if switch is not None}


def check_switches(
    found: Mapping[str, Switch],
    edges: Iterable[FlatEdge],
    types: Mapping[Endpoint, str],
    blind: frozenset[Endpoint],
) -> list[Issue]:
    """``types``: of every output port that is known, with those of the switches."""
    wired: dict[str, dict[str, Endpoint]] = {}
    for edge in edges:
        if edge.target in found:
            wired.setdefault(edge.target, {})[edge.target_port] = edge.start
    issues: list[Issue] = []
    for node_id, switch in found.items():
        sources = wired.get(node_id, {})
        dark = {end.port for end in blind if end.node == node_id}
        issues += _check_selection(switch, sources.keys() | dark)
        issues += _check_types(switch, sources, types)
    return issues


def output_types(found: Mapping[str, Switch], edges: Iterable[FlatEdge], types: dict[Endpoint, str]) -> None:
    """Give each switch's outputs in ``types`` the common type of its inputs; it stays as declared when they
    differ, when none is known, and in a circle of switches.
    """
    into: dict[str, list[FlatEdge]] = {node_id: [] for node_id in found}
    for edge in edges:
        if edge.target in into:
            into[edge.target].append(edge)
    between = [(edge.source, edge.target) for wires in into.values() for edge in wires]
    for level in levels(found, between)[0]:
        for node_id in level:
            switch = found[node_id]
            given = {
                types.get(edge.start, str(DataType.ANY))
                for edge in into[node_id]
                if edge.target_port in switch.inputs
            }
            if len(given) == 1:
                types.update(dict.fromkeys((Endpoint(node_id, port) for port in switch.outputs), given.pop()))


def _check_selection(switch: Switch, wired: Iterable[str]) -> list[Issue]:
    present, count = set(wired), len(switch.inputs)
    selected = switch.selected
    if switch.selector in present or isinstance(selected, bool) or not isinstance(selected, int):
        return []
    node = switch.node
    details: dict[str, JsonValue] = {"selector": selected, "inputs": count}
    if not 0 <= selected < count:
        text = f"Node {node.id} selects input {selected}; it has inputs 0 to {count - 1}."
        code = IssueCode.SWITCH_SELECTOR_OUT_OF_RANGE
    elif switch.inputs[selected] not in present:
        text = (
            f"Node {node.id} selects {switch.inputs[selected]}, which isn't wired; wire it or select another."
        )
        code = IssueCode.SWITCH_SELECTED_UNWIRED
        details["port"] = switch.inputs[selected]
    else:
        return []
    return [issue_at(text, code, node.container, node.id, details)]


def _check_types(
    switch: Switch, sources: Mapping[str, Endpoint], types: Mapping[Endpoint, str]
) -> list[Issue]:
    known = {port: types[sources[port]] for port in switch.inputs if sources.get(port) in types}
    given = {port: kind for port, kind in known.items() if kind != DataType.ANY}
    if len(set(given.values())) < 2:
        return []
    node = switch.node
    shown = ", ".join(f"{port} is {kind}" for port, kind in list(given.items())[:_FEW_SHOWN])
    text = f"The inputs of node {node.id} have different types ({shown}); wire one type into all of them."
    details: dict[str, JsonValue] = {"types": dict(given)}
    code = IssueCode.SWITCH_INPUT_TYPES_DIFFER
    return [issue_at(text, code, node.container, node.id, details)]
