"""The presets that nodes run by name (Map): found, expanded and followed into one another."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from .definitions import Definitions
from .document import Document
from .flat import FlatNode
from .groups import Group, Library
from .inline import Budget, Inlined, inline_document, inline_group
from .param_values import complete


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetUse:
    """One node that runs a preset."""

    node: FlatNode
    param: str
    preset: str
    inside: str | None
    """The mapped preset that the node lies in; None for the document itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closure:
    """A document with all that it runs."""

    library: Library
    main: Inlined
    presets: dict[str, Inlined] = field(default_factory=dict)
    """The mapped presets that exist, by name."""
    uses: list[PresetUse] = field(default_factory=list)

    def inlined(self) -> Iterable[Inlined]:
        """The document and its mapped presets."""
        return (self.main, *self.presets.values())

    def groups(self) -> dict[str, Group]:
        """Every preset in any of them, by name."""
        return {name: group for inlined in self.inlined() for name, group in inlined.used.items()}


def close(document: Document, definitions: Definitions) -> Closure:
    """Never raises."""
    library, budget = Library(document, definitions), Budget()
    found = Closure(library=library, main=inline_document(document, library, budget))
    pending: list[tuple[str | None, Inlined]] = [(None, found.main)]
    while pending:
        inside, inlined = pending.pop()
        for node, param, name in mapped_presets(inlined.nodes.values(), definitions):
            found.uses.append(PresetUse(node=node, param=param, preset=name, inside=inside))
            group = library.preset(name)
            if group is not None and name not in found.presets:
                found.presets[name] = inline_group(group, library, budget)
                pending.append((name, found.presets[name]))
    return found


def mapped_presets(
    nodes: Iterable[FlatNode], definitions: Definitions
) -> Iterable[tuple[FlatNode, str, str]]:
    """Node, param and preset name, for each param that names one."""
    for node in nodes:
        definition = definitions.find(node.type)
        if definition is None or not any(param.preset for param in definition.params):
            continue
        values = complete(definition, node.params)
        for param in definition.params:
            name = values[param.name]
            if param.preset and isinstance(name, str) and name:
                yield node, param.name, name
