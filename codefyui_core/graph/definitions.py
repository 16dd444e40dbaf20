"""All node types and installed presets that a graph is judged by, and their hashes."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from ..plugin.node import DataType, NodeDefinition
from ..plugin.values import JsonObject, Model
from .json_text import canonical


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """A value; equal content has an equal ``hash``."""

    nodes: Mapping[str, NodeDefinition]
    presets: Mapping[str, JsonObject] = field(default_factory=dict)
    """Installed preset documents by name."""
    data_types: frozenset[str] = frozenset(DataType)
    hash: str
    """Of the node definitions; see ``catalog_hash``."""
    by_bare_name: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Namespaced types by their name without the namespace, in alphabetical order."""

    @classmethod
    def of(
        cls,
        nodes: Iterable[NodeDefinition],
        presets: Iterable[JsonObject] = (),
        data_types: Iterable[str] = (),
    ) -> Self:
        """Raises: ValueError for a type that comes twice."""
        by_type: dict[str, NodeDefinition] = {}
        for node in nodes:
            if node.type in by_type:
                raise ValueError(f"node type {node.type!r} is defined twice")
            by_type[node.type] = node
        return cls(
            nodes=by_type,
            presets={
                name: preset for preset in presets if isinstance(name := preset.get("preset_name"), str)
            },
            data_types=frozenset(map(str, DataType)) | frozenset(data_types),
            hash=catalog_hash(by_type.values()),
            by_bare_name=_by_bare_name(by_type),
        )

    def candidates(self, type_name: str) -> tuple[str, ...]:
        """The types that a name can mean, the one that is taken first. Several only for a bare name that
        more than one namespace has.
        """
        if type_name in self.nodes:
            return (type_name,)
        return self.by_bare_name.get(type_name, ())

    def find(self, type_name: str) -> NodeDefinition | None:
        """By exact type; a bare name that no catalog has as such is looked for in the namespaces, where the
        alphabetically first wins.
        """
        candidates = self.candidates(type_name)
        return self.nodes[candidates[0]] if candidates else None

    def to_json(self) -> JsonObject:
        """For a file or the wire."""
        return {
            "nodes": [node.model_dump(mode="json") for node in self.nodes.values()],
            "presets": list(self.presets.values()),
            "data_types": [*sorted(self.data_types)],
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        """Raises: pydantic.ValidationError when it has another shape, as of another version."""
        stored = _Stored.model_validate(value)
        return cls.of(stored.nodes, stored.presets, stored.data_types)


class _Stored(Model):
    nodes: tuple[NodeDefinition, ...]
    presets: tuple[JsonObject, ...]
    data_types: tuple[str, ...]


def definition_hash(definition: NodeDefinition) -> str:
    """SHA-256 (hex) of the canonical JSON of all fields."""
    return hashlib.sha256(canonical(definition.model_dump(mode="json"))).hexdigest()


def catalog_hash(definitions: Iterable[NodeDefinition]) -> str:
    """SHA-256 (hex) over type and definition hash of each; independent of their order."""
    return hashlib.sha256(canonical({node.type: definition_hash(node) for node in definitions})).hexdigest()


def _by_bare_name(types: Iterable[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for type_name in sorted(types):
        namespace, colon, name = type_name.rpartition(":")
        if colon and namespace:
            found[name] = (*found.get(name, ()), type_name)
    return found
