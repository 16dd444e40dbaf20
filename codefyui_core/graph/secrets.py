"""SECRET params: found wherever a document can hold one, blanked for storage, filled in again for a run."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic import JsonValue

from ..plugin.node import ParamKind
from ..plugin.values import JsonObject
from .definitions import Definitions
from .document import Document
from .groups import GroupKind, Library, declared_secrets
from .issues import GraphInvalid, Issue, IssueCode
from .well_known import PRESET_PREFIX

Path = tuple[str | int, ...]
BLANK = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretParam:
    """A place in the document that holds a secret."""

    node_id: str
    """Of the level that it lies in."""
    param: str
    path: Path
    """Keys and indexes from the root of the document."""

    @property
    def pointer(self) -> str:
        """The path as a JSON pointer (RFC 6901)."""
        return "".join(f"/{str(key).replace('~', '~0').replace('/', '~1')}" for key in self.path)


@dataclass(frozen=True, slots=True, repr=False)
class SecretValues:
    """What was blanked, by JSON pointer. Its text shows stars: only ``to_json`` gives the values away, and
    that is for memory and the wire alone.
    """

    by_pointer: Mapping[str, JsonValue] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Mapping[str, JsonValue]) -> Self:
        return cls(dict(value))

    def to_json(self) -> JsonObject:
        return dict(self.by_pointer)

    def __bool__(self) -> bool:
        return bool(self.by_pointer)

    def __len__(self) -> int:
        return len(self.by_pointer)

    def __repr__(self) -> str:
        return f"SecretValues({', '.join(f'{pointer}=**********' for pointer in self.by_pointer)})"


def secret_params(document: Document, definitions: Definitions) -> tuple[SecretParam, ...]:
    """Every place with a value that isn't blank: in nodes, in the overrides of preset instances, in the
    document's own presets (defaults of exposed params too) and subgraphs.
    """
    finder = _Finder(Library(document, definitions), definitions)
    return tuple(finder.document(document.raw))


def blank_secrets(document: Document, definitions: Definitions) -> tuple[Document, SecretValues]:
    """The document without secrets, fit to be stored, and what was taken out."""
    found = secret_params(document, definitions)
    if not found:
        return document, SecretValues()
    raw = deepcopy(document.raw)
    values: dict[str, JsonValue] = {}
    for secret in found:
        holder, key = _holder(raw, secret.path)
        values[secret.pointer] = holder[key]
        holder[key] = BLANK
    return Document(raw), SecretValues(values)


def fill_secrets(document: Document, values: SecretValues) -> Document:
    """The reverse.

    Raises: GraphInvalid when the document isn't the one that they were taken out of.
    """
    if not values:
        return document
    raw = deepcopy(document.raw)
    for pointer, value in values.to_json().items():
        try:
            holder, key = _holder(raw, _path(raw, pointer))
            holder[key] = value
        except (LookupError, TypeError, ValueError):
            text = f"A secret can't be filled in: the graph has nothing at {pointer}. Submit it again."
            raise GraphInvalid([Issue(text, IssueCode.MALFORMED_DOCUMENT)]) from None
    return Document(raw)


class _Finder:
    def __init__(self, library: Library, definitions: Definitions) -> None:
        self._library = library
        self._definitions = definitions

    def document(self, raw: Mapping[str, Any]) -> Iterator[SecretParam]:
        yield from self._level(raw, ())
        for key in ("presets", "subgraphs"):
            for index, group in _entries(raw.get(key)):
                yield from self._level(group, (key, index))
                yield from self._exposed(group, (key, index))

    def _level(self, raw: Mapping[str, Any], at: Path) -> Iterator[SecretParam]:
        declared = declared_secrets(raw)
        for index, node in _entries(raw.get("nodes")):
            path = (*at, "nodes", index)
            yield from self._node(node, node, path, declared)
            if isinstance(data := node.get("data"), Mapping):
                yield from self._node(node, data, (*path, "data"), declared)

    def _node(
        self,
        node: Mapping[str, Any],
        holder: Mapping[str, Any],
        path: Path,
        declared: Mapping[str, frozenset[str]],
    ) -> Iterator[SecretParam]:
        """``holder``: one of the two places where a node may keep its params."""
        node_id, type_name = str(node.get("id")), node.get("type")
        if not isinstance(type_name, str):
            return
        for name in self._names(type_name, declared.get(node_id)):
            yield from _at(holder.get("params"), name, node_id, (*path, "params"))
        if type_name.startswith(PRESET_PREFIX):
            preset, at = type_name.removeprefix(PRESET_PREFIX), (*path, "internalParams")
            yield from self._overrides(preset, holder.get("internalParams"), at, ())

    def _overrides(
        self, preset: str, overrides: Any, path: Path, above: tuple[str, ...]
    ) -> Iterator[SecretParam]:
        group = self._library.find(GroupKind.PRESET, preset)
        if group is None or preset in above or not isinstance(overrides, Mapping):
            return
        for inner in group.content.nodes:
            values, at = overrides.get(inner.id), (*path, inner.id)
            for name in self._names(inner.type, group.secrets.get(inner.id)):
                yield from _at(values, name, inner.id, at)
            if inner.type.startswith(PRESET_PREFIX):
                nested = inner.type.removeprefix(PRESET_PREFIX)
                yield from self._overrides(nested, values, at, (*above, preset))

    def _exposed(self, group: Mapping[str, Any], at: Path) -> Iterator[SecretParam]:
        declared = declared_secrets(group)
        nodes = {str(node.get("id")): str(node.get("type")) for _, node in _entries(group.get("nodes"))}
        for index, exposed in _entries(group.get("exposed_params")):
            inner, name = exposed.get("internal_node"), exposed.get("param_name")
            if isinstance(inner, str) and name in self._names(nodes.get(inner, ""), declared.get(inner)):
                path = (*at, "exposed_params", index, "param_def")
                yield from _at(exposed.get("param_def"), "default", inner, path)

    def _names(self, type_name: str, declared: frozenset[str] | None) -> list[str]:
        """The secret params of a node: by its type, and by what the preset around it says of it."""
        definition = self._definitions.find(type_name)
        params = () if definition is None else definition.params
        own = {param.name for param in params if param.kind is ParamKind.SECRET}
        return sorted(own | (declared or frozenset()))


def _entries(raw: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for index, item in enumerate(raw if isinstance(raw, list | tuple) else ()):
        if isinstance(item, Mapping):
            yield index, item


def _at(values: Any, name: str, node_id: str, path: Path) -> Iterator[SecretParam]:
    if isinstance(values, Mapping) and values.get(name) not in (None, BLANK):
        yield SecretParam(node_id=node_id, param=name, path=(*path, name))


def _holder(raw: Any, path: Path) -> tuple[Any, str | int]:
    for key in path[:-1]:
        raw = raw[key]
    raw[path[-1]]  # only what is there is ever replaced
    return raw, path[-1]


def _path(raw: Any, pointer: str) -> Path:
    found: list[str | int] = []
    for part in pointer.split("/")[1:]:
        key: str | int = part.replace("~1", "/").replace("~0", "~")
        if isinstance(raw, list):
            key = int(key)
        raw = raw[key]
        found.append(key)
    return tuple(found)
