"""Presets and subgraphs: groups of nodes with a declared outside, read from their documents on first use."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..plugin.node import ParamKind
from ..plugin.values import JsonObject
from .content import Content, Endpoint, read_content
from .definitions import Definitions
from .document import Document
from .issues import Issue, IssueCode
from .well_known import PRESET_PREFIX, SUBGRAPH_PREFIX


class GroupKind(StrEnum):
    """Each with its own ids after expansion and its own codes."""

    PRESET = "preset"
    SUBGRAPH = "subgraph"

    @property
    def separator(self) -> str:
        """Between the ids of an instance and of an inner node."""
        return "__" if self is GroupKind.PRESET else "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One definition."""

    kind: GroupKind
    name: str
    """A preset's name, a subgraph's id."""
    content: Content
    inputs: Mapping[str, Endpoint]
    """What is exposed, in its order."""
    outputs: Mapping[str, Endpoint]
    trigger_targets: tuple[str, ...]
    """Inner nodes that a trigger starts. Empty: those that nothing feeds."""
    secrets: Mapping[str, frozenset[str]]
    """By inner node: params that the group itself declares as secret, also of types that aren't installed."""
    issues: tuple[Issue, ...]
    installed: bool
    """It isn't in the document."""

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}"


class Library:
    """The groups that a document can use: its own, then the installed presets."""

    def __init__(self, document: Document, definitions: Definitions) -> None:
        self.issues: list[Issue] = []
        self._embedded = self._by_name(document.raw.get("presets"), "preset_name", GroupKind.PRESET)
        self._subgraphs = self._by_name(document.raw.get("subgraphs"), "id", GroupKind.SUBGRAPH)
        self._installed = definitions.presets
        self._read: dict[tuple[GroupKind, str], Group | None] = {}

    def of_type(self, type_name: str) -> tuple[GroupKind, str] | None:
        """The kind and name that a node's type means; None for a plain node."""
        for kind, prefix in ((GroupKind.PRESET, PRESET_PREFIX), (GroupKind.SUBGRAPH, SUBGRAPH_PREFIX)):
            if type_name.startswith(prefix):
                return kind, type_name.removeprefix(prefix)
        return None

    def find(self, kind: GroupKind, name: str) -> Group | None:
        """The definition; None when neither the document nor the installation has it."""
        key = kind, name
        if key not in self._read:
            self._read[key] = self._find(kind, name)
        return self._read[key]

    def preset(self, name: str) -> Group | None:
        return self.find(GroupKind.PRESET, name)

    def _find(self, kind: GroupKind, name: str) -> Group | None:
        if kind is GroupKind.SUBGRAPH:
            raw = self._subgraphs.get(name)
            return None if raw is None else _read_subgraph(name, raw)
        embedded = self._embedded.get(name)
        if embedded is not None:
            return _read_preset(name, embedded, installed=False)
        installed = self._installed.get(name)
        return None if installed is None else _read_preset(name, installed, installed=True)

    def _by_name(self, raw: Any, key: str, kind: GroupKind) -> dict[str, Mapping[str, Any]]:
        found: dict[str, Mapping[str, Any]] = {}
        for index, item in enumerate(raw or ()):
            name = item.get(key) if isinstance(item, Mapping) else None
            if not isinstance(name, str) or not name:
                text = f"The {kind} definition number {index + 1} of the graph has no {key}."
                self.issues.append(Issue(text, _unreadable(kind), None, {"index": index}))
            elif name in found:
                text = f"The graph has two {kind} definitions called {name}; remove one of them."
                self.issues.append(Issue(text, _unreadable(kind), None, {"definition": name}))
            else:
                found[name] = item
        return found


def _unreadable(kind: GroupKind) -> IssueCode:
    return IssueCode.PRESET_UNREADABLE if kind is GroupKind.PRESET else IssueCode.SUBGRAPH_UNREADABLE


def _read_preset(name: str, raw: Mapping[str, Any], *, installed: bool) -> Group:
    content = read_content(raw, f"Preset {name}")
    outside = _Outside(GroupKind.PRESET, name, content, ("name", "internal_node", "internal_port"))
    return Group(
        kind=GroupKind.PRESET,
        name=name,
        content=content,
        inputs=outside.read(raw.get("exposed_inputs"), "exposed_inputs"),
        outputs=outside.read(raw.get("exposed_outputs"), "exposed_outputs"),
        trigger_targets=(),
        secrets=declared_secrets(raw),
        issues=(*content.issues, *outside.issues),
        installed=installed,
    )


def _read_subgraph(name: str, raw: Mapping[str, Any]) -> Group:
    content = read_content(raw, f"Subgraph {name}")
    outside = _Outside(GroupKind.SUBGRAPH, name, content, ("port", "innerNode", "innerPort"))
    given = raw.get("interface")
    interface: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    if given is not None and not isinstance(given, Mapping):
        outside.bad("has an interface that is no object")
    return Group(
        kind=GroupKind.SUBGRAPH,
        name=name,
        content=content,
        inputs=outside.read(interface.get("inputs"), "inputs"),
        outputs=outside.read(interface.get("outputs"), "outputs"),
        trigger_targets=outside.targets(interface.get("triggerTargets")),
        secrets={},
        issues=(*content.issues, *outside.issues),
        installed=False,
    )


def declared_secrets(raw: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Of a preset's document: by inner node, the params that it exposes as secrets."""
    found: dict[str, frozenset[str]] = {}
    exposed = raw.get("exposed_params")
    for item in exposed if isinstance(exposed, list | tuple) else ():
        declared = item.get("param_def") if isinstance(item, Mapping) else None
        if not isinstance(declared, Mapping) or declared.get("param_type") != ParamKind.SECRET:
            continue
        node, param = item.get("internal_node"), item.get("param_name")
        if isinstance(node, str) and isinstance(param, str):
            found[node] = found.get(node, frozenset()) | {param}
    return found


class _Outside:
    """Reads what a group exposes."""

    def __init__(self, kind: GroupKind, name: str, content: Content, keys: tuple[str, str, str]) -> None:
        self._kind = kind
        self._name = name
        self._inner = {node.id for node in content.nodes}
        self._keys = keys
        self.issues: list[Issue] = []

    def bad(self, why: str) -> None:
        details: JsonObject = {"definition": self._name}
        text = f"{self._kind.capitalize()} {self._name} {why}."
        self.issues.append(Issue(text, _unreadable(self._kind), None, details))

    def read(self, raw: Any, key: str) -> dict[str, Endpoint]:
        found: dict[str, Endpoint] = {}
        for item in self._list(raw, key):
            texts = [item.get(name) for name in self._keys] if isinstance(item, Mapping) else []
            if not texts or not all(isinstance(text, str) and text for text in texts):
                self.bad(f"has an entry in {key} without {', '.join(self._keys)}")
                continue
            name, node, port = map(str, texts)
            if node not in self._inner:
                self.bad(f"exposes {name} of its node {node}, which isn't there")
            elif name in found:
                self.bad(f"exposes {name} twice in {key}")
            else:
                found[name] = Endpoint(node, port)
        return found

    def targets(self, raw: Any) -> tuple[str, ...]:
        found = [item for item in self._list(raw, "triggerTargets") if isinstance(item, str)]
        for item in found:
            if item not in self._inner:
                self.bad(f"is started at its node {item}, which isn't there")
        return tuple(item for item in dict.fromkeys(found) if item in self._inner)

    def _list(self, raw: Any, key: str) -> Iterable[Any]:
        if raw is not None and not isinstance(raw, list | tuple):
            self.bad(f"has {key} that are no list")
            return ()
        return raw or ()
