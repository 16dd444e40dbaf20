"""The ``layers`` text of a SequentialModel: a graph of layers inside one param, parsed and checked."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..base import UnfitError

VERSION = 2
INPUT, OUTPUT = "Input", "Output"
MERGE_ARITY: Mapping[str, tuple[int, int | None]] = {
    "Add": (2, None),
    "Multiply": (2, None),
    "Mean": (2, None),
    "Subtract": (2, 2),
    "Concat": (1, None),
    "Stack": (1, None),
}
"""Fewest and most inputs of the layers that take several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a layer's input comes from: another layer, or a port of Input when ``port`` is set."""

    layer: str
    port: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer; merges have several sources, in the order of the edges."""

    id: str
    type: str
    params: Mapping[str, Any] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A checked graph of layers, in an order in which they can be computed."""

    layers: tuple[Layer, ...]
    inputs: tuple[str, ...]
    """Names of the input ports, in their order."""
    outputs: Mapping[str, Source]


def bad(message: str) -> UnfitError:
    """The error for a drawing that can't be built."""
    return UnfitError(f"layers: {message}")


def parse_drawing(text: str) -> Drawing:
    """Parse a version 2 drawing.

    Raises: UnfitError that names the layer or port at fault.
    """
    document = _document(text)
    nodes = _by_id(document.get("nodes"))
    entry, leave = _only(nodes, INPUT), _only(nodes, OUTPUT)
    in_ports, out_ports = _ports(nodes[entry]), _ports(nodes[leave])
    incoming = _incoming(document.get("edges"), nodes, in_ports, out_ports)
    layers = {
        id_: _layer(node, [source for source, _ in incoming[id_]])
        for id_, node in nodes.items()
        if id_ not in {entry, leave}
    }
    _check_inputs_used(in_ports, incoming)
    outputs = {
        name: _one_source(f"output port {name}", [s for s, port in incoming[leave] if port == key])
        for key, name in out_ports.items()
    }
    return Drawing(layers=_sorted(layers), inputs=tuple(in_ports.values()), outputs=outputs)


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (TypeError, ValueError) as problem:
        raise bad(f"not a JSON text ({problem})") from problem
    if not isinstance(document, dict) or document.get("version") != VERSION:
        found = document.get("version") if isinstance(document, dict) else None
        raise bad(f"only version {VERSION} is understood, this one says {found!r}; draw the model anew")
    return document


def _by_id(nodes: Any) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for node in nodes if isinstance(nodes, list) else ():
        if not isinstance(node, dict) or not all(isinstance(node.get(key), str) for key in ("id", "type")):
            raise bad("every node needs an id and a type, both texts")
        if node["id"] in found:
            raise bad(f"two nodes have the id {node['id']!r}")
        found[node["id"]] = node
    return found


def _only(nodes: Mapping[str, dict[str, Any]], type_: str) -> str:
    ids = [id_ for id_, node in nodes.items() if node["type"] == type_]
    if len(ids) != 1:
        raise bad(f"exactly one {type_} is needed, there are {len(ids)}")
    return ids[0]


def _ports(node: Mapping[str, Any]) -> dict[str, str]:
    """Names of an Input's or Output's ports by their ids."""
    ports = node.get("ports")
    listed = [port for port in ports if isinstance(port, dict)] if isinstance(ports, list) else []
    names = {str(port.get("id")): str(port.get("name")) for port in listed}
    if not names:
        raise bad(f"{node['type']} has no port")
    if len(names) != len(listed) or len(set(names.values())) != len(names):
        raise bad(f"two ports of {node['type']} share an id or a name")
    return names


def _incoming(
    edges: Any, nodes: Mapping[str, dict[str, Any]], in_ports: Mapping[str, str], out_ports: Mapping[str, str]
) -> dict[str, list[tuple[Source, str | None]]]:
    incoming: dict[str, list[tuple[Source, str | None]]] = {id_: [] for id_ in nodes}
    for edge in edges if isinstance(edges, list) else ():
        if not isinstance(edge, dict):
            raise bad("every wire needs a source and a target")
        source, target = str(edge.get("source")), str(edge.get("target"))
        for end in (source, target):
            if end not in nodes:
                raise bad(f"a wire names the unknown node {end!r}")
        port, into = str(edge.get("sourceHandle")), str(edge.get("targetHandle"))
        if nodes[source]["type"] == INPUT and port not in in_ports:
            raise bad(f"a wire leaves Input by the unknown port {port!r}")
        if nodes[target]["type"] == OUTPUT and into not in out_ports:
            raise bad(f"a wire enters Output by the unknown port {into!r}")
        if nodes[source]["type"] == OUTPUT or nodes[target]["type"] == INPUT:
            raise bad("nothing leaves Output or enters Input")
        named = in_ports[port] if nodes[source]["type"] == INPUT else None
        incoming[target].append((Source(layer=source, port=named), into))
    return incoming


def _layer(node: Mapping[str, Any], sources: Sequence[Source]) -> Layer:
    params = node.get("params") or {}
    if not isinstance(params, dict):
        raise bad(f"params of {node['id']} aren't an object")
    least, most = MERGE_ARITY.get(node["type"], (1, 1))
    if len(sources) < least or (most is not None and len(sources) > most):
        wanted = f"{least}" if least == most else f"{least} or more"
        raise bad(f"{node['type']} {node['id']} needs {wanted} wires into it and has {len(sources)}")
    return Layer(id=node["id"], type=node["type"], params=params, sources=tuple(sources))


def _check_inputs_used(
    in_ports: Mapping[str, str], incoming: Mapping[str, list[tuple[Source, str | None]]]
) -> None:
    used = {source.port for sources in incoming.values() for source, _ in sources}
    for name in in_ports.values():
        if name not in used:
            raise bad(f"input port {name} is wired to nothing")


def _one_source(what: str, sources: Sequence[Source]) -> Source:
    if len(sources) != 1:
        raise bad(f"{what} needs exactly one wire and has {len(sources)}")
    return sources[0]


def _sorted(layers: Mapping[str, Layer]) -> tuple[Layer, ...]:
    done: list[Layer] = []
    known: set[str] = set()
    waiting = dict(layers)
    while waiting:
        ready = [
            layer
            for layer in waiting.values()
            if all(source.port is not None or source.layer in known for source in layer.sources)
        ]
        if not ready:
            raise bad(f"a cycle runs through {', '.join(sorted(waiting))}")
        for layer in ready:
            del waiting[layer.id]
        known.update(layer.id for layer in ready)
        done.extend(ready)
    return tuple(done)
