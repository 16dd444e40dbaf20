"""Replaces preset and subgraph instances by their nodes, collecting what is wrong on the way."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from ..plugin.values import JsonObject
from .content import Content, Endpoint, GraphEdge, GraphNode, read_content
from .document import Document
from .flat import FlatEdge, FlatNode, Trigger
from .groups import Group, GroupKind, Library
from .issues import Issue, IssueCode
from .well_known import CONTRACT, START

NESTING_LIMIT = 10
EXPANDED_LIMIT = 200_000
"""Nodes and edges after expansion: ten presets in one another can stand for billions."""


@dataclass(slots=True)
class Budget:
    """What may still be expanded, over all graphs that one question expands."""

    left: int = EXPANDED_LIMIT

    def spend(self, amount: int) -> None:
        self.left -= amount
        if self.left < 0:
            raise _TooLarge


class _TooLarge(Exception):
    """Ends an expansion wherever it is."""


@dataclass(slots=True, kw_only=True)
class Inlined:
    """A graph without groups; bypassed nodes are still in it."""

    nodes: dict[str, FlatNode] = field(default_factory=dict)
    edges: list[FlatEdge] = field(default_factory=list)
    triggers: list[Trigger] = field(default_factory=list)
    bypassed: set[str] = field(default_factory=set)
    issues: list[Issue] = field(default_factory=list)
    inputs: Mapping[str, Endpoint] = field(default_factory=dict)
    """Where the exposed inputs of a group that was inlined by itself lead to."""
    outputs: Mapping[str, Endpoint] = field(default_factory=dict)
    used: dict[str, Group] = field(default_factory=dict)
    """The presets in it, by name."""
    blind: set[Endpoint] = field(default_factory=set)
    """Inputs that are wired to something that couldn't be expanded."""
    blind_trigger: bool = False
    """A trigger leads to something that couldn't be expanded."""
    complete: bool = True
    """False: too large, nothing else is known."""


@dataclass(frozen=True, slots=True)
class _Leaf:
    id: str


@dataclass(frozen=True, slots=True)
class _Instance:
    group: Group
    places: "Mapping[str, _Place]"
    """By inner id; a node that couldn't be expanded is missing."""


_Place = _Leaf | _Instance


def inline_document(document: Document, library: Library, budget: Budget | None = None) -> Inlined:
    """The whole graph. Never raises."""
    content = read_content(document.raw)
    work = _Inliner(library, budget or Budget())
    work.out.issues += [*content.issues, *library.issues]
    work.whole(content, None)
    return work.out


def inline_group(group: Group, library: Library, budget: Budget | None = None) -> Inlined:
    """One preset by itself, as Map runs it: ids are those of its own nodes."""
    work = _Inliner(library, budget or Budget())
    work.out.issues += group.issues
    work.out.used[group.name] = group
    work.whole(group.content, group)
    return work.out


class _Inliner:
    def __init__(self, library: Library, budget: Budget) -> None:
        self._library = library
        self._budget = budget
        self._reported: set[tuple[GroupKind, str]] = set()
        self.out = Inlined()

    def whole(self, content: Content, group: Group | None) -> None:
        stack = () if group is None else (group,)
        try:
            places = self._level(content, "", None, stack, {})
        except _TooLarge:
            text = f"The graph is larger than {EXPANDED_LIMIT} nodes and edges once its presets are expanded."
            self.out.issues.append(Issue(text, IssueCode.TOO_LARGE, None, {"limit": EXPANDED_LIMIT}))
            self.out.complete = False
            return
        if group is not None:
            whole = _Instance(group, places)
            found = {name: self._input(whole, name) for name in group.inputs}
            self.out.inputs = {name: end for name, end in found.items() if end is not None}
            found = {name: self._output(whole, name) for name in group.outputs}
            self.out.outputs = {name: end for name, end in found.items() if end is not None}

    def _level(
        self,
        content: Content,
        prefix: str,
        container: str | None,
        stack: tuple[Group, ...],
        overrides: Mapping[str, Mapping[str, JsonValue]],
    ) -> dict[str, _Place]:
        self._budget.spend(len(content.nodes) + len(content.edges) + 1)
        places: dict[str, _Place] = {}
        for node in content.nodes:
            place = self._place(node, prefix, container, stack, overrides.get(node.id, {}))
            if place is not None:
                places[node.id] = place
        for edge in content.edges:
            self._edge(edge, prefix, container, places)
        self._triggers(content, prefix, container, places)
        return places

    def _place(
        self,
        node: GraphNode,
        prefix: str,
        container: str | None,
        stack: tuple[Group, ...],
        override: Mapping[str, JsonValue],
    ) -> _Place | None:
        flat_id = prefix + node.id
        named = self._library.of_type(node.type)
        if node.bypassed:
            self._check_bypass(node, flat_id, container, is_group=named is not None)
        if named is not None:
            return self._group(node, flat_id, container or flat_id, stack, named, override)
        flat = FlatNode(id=flat_id, type=node.type, params={**node.params, **override}, container=container)
        if flat_id in self.out.nodes:
            self._issue(
                f"Two nodes get the id {flat_id} once presets are expanded; give one of them another id.",
                IssueCode.DUPLICATE_ID,
                container,
                flat_id,
            )
            return None
        self.out.nodes[flat_id] = flat
        if node.bypassed and not _keeps(node.type):
            self.out.bypassed.add(flat_id)
        return _Leaf(flat_id)

    def _check_bypass(self, node: GraphNode, flat_id: str, container: str | None, *, is_group: bool) -> None:
        if is_group or _keeps(node.type):
            self._issue(
                f"Node {flat_id} ({node.type}) can't be bypassed; remove it or the bypass.",
                IssueCode.BYPASS_NOT_ALLOWED,
                container,
                flat_id,
                {"type": node.type},
            )

    def _group(
        self,
        node: GraphNode,
        flat_id: str,
        container: str,
        stack: tuple[Group, ...],
        named: tuple[GroupKind, str],
        override: Mapping[str, JsonValue],
    ) -> _Instance | None:
        kind, name = named
        group = self._library.find(kind, name)
        if group is None or not self._may_nest(group, flat_id, container, stack):
            if group is None:
                self._unknown(kind, name, container, flat_id)
            return None
        self._report(group, container)
        inner = _merge(node.internal_params, override) if kind is GroupKind.PRESET else {}
        prefix = flat_id + kind.separator
        return _Instance(group, self._level(group.content, prefix, container, (*stack, group), inner))

    def _may_nest(self, group: Group, flat_id: str, container: str, stack: tuple[Group, ...]) -> bool:
        path: list[JsonValue] = [above.name for above in stack]
        details: JsonObject = {"definition": group.name, "path": [*path, group.name]}
        if any(above.kind is group.kind and above.name == group.name for above in stack):
            code = IssueCode(f"{group.kind}_recursion")
            text = f"The {group.title} contains itself; remove the inner instance."
        elif len(stack) >= NESTING_LIMIT:
            code = IssueCode.NESTING_TOO_DEEP
            text = f"The {group.title} lies more than {NESTING_LIMIT} levels deep; flatten the graph."
        elif group.kind is GroupKind.SUBGRAPH and any(above.kind is GroupKind.PRESET for above in stack):
            code = IssueCode.SUBGRAPH_IN_PRESET
            text = f"Preset {stack[-1].name} holds subgraph {group.name}; a preset can't hold subgraphs."
        else:
            return True
        self._issue(text, code, container, flat_id, details)
        return False

    def _unknown(self, kind: GroupKind, name: str, container: str, flat_id: str) -> None:
        self._issue(
            f"There is no {kind} called {name}; install it, or open the graph that it came with.",
            IssueCode(f"unknown_{kind}"),
            container,
            flat_id,
            {kind.value: name},
        )

    def _report(self, group: Group, container: str) -> None:
        """What is wrong with a definition, once, at its first instance."""
        if group.kind is GroupKind.PRESET:
            self.out.used[group.name] = group
        if (group.kind, group.name) not in self._reported:
            self._reported.add((group.kind, group.name))
            self.out.issues += [
                Issue(found.message, found.code, container, {"definition": group.name, **found.params})
                for found in group.issues
            ]

    def _edge(
        self, edge: GraphEdge, prefix: str, container: str | None, places: Mapping[str, _Place]
    ) -> None:
        source, target = places.get(edge.source.node), places.get(edge.target.node)
        if edge.trigger:
            return
        start, end = self._output(source, edge.source.port), self._input(target, edge.target.port)
        if start is None:
            self._not_exposed(source, "output", edge.source, prefix, container)
        if end is None:
            self._not_exposed(target, "input", edge.target, prefix, container)
        elif start is None:
            self.out.blind.add(end)
        else:
            flat = FlatEdge(source=start.node, source_port=start.port, target=end.node, target_port=end.port)
            self.out.edges.append(flat)

    def _input(self, place: _Place | None, port: str) -> Endpoint | None:
        while isinstance(place, _Instance):
            inner = place.group.inputs.get(port)
            if inner is None:
                return None
            place, port = place.places.get(inner.node), inner.port
        return None if place is None else Endpoint(place.id, port)

    def _output(self, place: _Place | None, port: str) -> Endpoint | None:
        while isinstance(place, _Instance):
            inner = place.group.outputs.get(port)
            if inner is None:
                return None
            place, port = place.places.get(inner.node), inner.port
        return None if place is None else Endpoint(place.id, port)

    def _not_exposed(
        self, place: _Place | None, side: str, end: Endpoint, prefix: str, container: str | None
    ) -> None:
        if not isinstance(place, _Instance):
            return
        exposed = place.group.inputs if side == "input" else place.group.outputs
        if end.port in exposed:
            return  # its inner node couldn't be expanded, which is an issue of its own
        is_preset = place.group.kind is GroupKind.PRESET
        code = f"preset_{side}_not_exposed" if is_preset else f"invalid_{side}_port"
        self._issue(
            f"Node {prefix + end.node}: {place.group.title} has no {side} called {end.port!r}; "
            f"it has {', '.join(exposed) or 'none'}.",
            IssueCode(code),
            container,
            prefix + end.node,
            {"port": end.port, place.group.kind.value: place.group.name, "ports": list(exposed)},
        )

    def _triggers(
        self, content: Content, prefix: str, container: str | None, places: Mapping[str, _Place]
    ) -> None:
        fed: dict[str, set[str]] = {}
        for edge in content.edges:
            if not edge.trigger:
                fed.setdefault(edge.target.node, set()).add(edge.target.port)
        for edge in content.edges:
            source, target = places.get(edge.source.node), places.get(edge.target.node)
            if not edge.trigger:
                continue
            if source is None or target is None:
                self.out.blind_trigger = True
                continue
            if isinstance(source, _Instance):
                self._not_start(prefix + edge.source.node, source.group.title, container)
                continue
            starts = self._starts(target, fed.get(edge.target.node, set()))
            self._budget.spend(len(starts))
            self.out.triggers += [Trigger(source=source.id, target=start) for start in starts]
            if not starts and isinstance(target, _Instance):
                self._nothing_starts(target.group, prefix + edge.target.node, container)

    def _starts(self, place: _Place, fed: set[str]) -> list[str]:
        """The plain nodes that a trigger starts, when the inputs ``fed`` of the instance are wired."""
        if isinstance(place, _Leaf):
            return [place.id]
        group = place.group
        chosen: tuple[str, ...] = group.trigger_targets or _roots(group.content)
        if group.kind is GroupKind.PRESET:
            reached = {group.inputs[name].node for name in fed if name in group.inputs}
            chosen = tuple(inner for inner in chosen if inner not in reached)
        below = (place.places[inner] for inner in chosen if inner in place.places)
        return [start for inner in below for start in self._starts(inner, set())]

    def _not_start(self, flat_id: str, title: str, container: str | None) -> None:
        text = f"Node {flat_id} ({title}) starts nothing; trigger edges come from a Start node."
        self._issue(text, IssueCode.INVALID_OUTPUT_PORT, container, flat_id)

    def _nothing_starts(self, group: Group, flat_id: str, container: str | None) -> None:
        if group.kind is GroupKind.SUBGRAPH:
            code, why = IssueCode.SUBGRAPH_TRIGGERED_EMPTY, "it has no node to start with"
        elif _roots(group.content):
            code, why = IssueCode.PRESET_TRIGGERED_ALL_FED, "all nodes that it could start get wires already"
        else:
            code, why = IssueCode.PRESET_TRIGGERED_EMPTY, "it has no node to start with"
        text = f"The trigger to {flat_id} ({group.title}) starts nothing: {why}. Remove the trigger."
        self._issue(text, code, container, flat_id, {group.kind.value: group.name})

    def _issue(
        self,
        text: str,
        code: IssueCode,
        container: str | None,
        flat_id: str,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        self.out.issues.append(issue_at(text, code, container, flat_id, details))


def issue_at(
    text: str,
    code: IssueCode,
    container: str | None,
    flat_id: str,
    details: Mapping[str, Any] | None = None,
) -> Issue:
    """About a node after expansion: charged to what a person sees of it."""
    inner = {} if container in (None, flat_id) else {"inner_node": flat_id}
    return Issue(text, code, container or flat_id, {**(details or {}), **inner})


def _keeps(type_name: str) -> bool:
    """Types that mean something by being there."""
    return type_name == START or type_name in CONTRACT


def _roots(content: Content) -> tuple[str, ...]:
    fed = {edge.target.node for edge in content.edges if not edge.trigger}
    return tuple(node.id for node in content.nodes if node.id not in fed)


def _merge(
    own: Mapping[str, Mapping[str, JsonValue]], override: Mapping[str, JsonValue]
) -> dict[str, dict[str, JsonValue]]:
    """Overrides of an instance that lies in a preset, with those of the outer instance above them."""
    merged = {inner: dict(values) for inner, values in own.items()}
    for inner, values in override.items():
        if isinstance(values, dict):
            merged[inner] = {**merged.get(inner, {}), **values}
    return merged
