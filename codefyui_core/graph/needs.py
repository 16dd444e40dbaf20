"""What a run of a graph needs: its node types, and the presets that have to travel with it."""

from .definitions import Definitions
from .document import Document
from .mapped import close


def node_types(document: Document, definitions: Definitions) -> frozenset[str]:
    """Every type in the graph after presets, subgraphs and the presets that nodes run are expanded; those
    that aren't installed too, under the name that the graph has. Never raises.
    """
    found = set()
    for inlined in close(document, definitions).inlined():
        for node in inlined.nodes.values():
            definition = definitions.find(node.type)
            found.add(node.type if definition is None else definition.type)
    return frozenset(found)


def embed_presets(document: Document, definitions: Definitions) -> Document:
    """The document with every installed preset that it needs among its own, so that it means the same
    where other presets are installed.
    """
    groups = close(document, definitions).groups()
    missing = [definitions.presets[name] for name, group in groups.items() if group.installed]
    if not missing:
        return document
    own = document.raw.get("presets")
    return Document({**document.raw, "presets": [*(own if isinstance(own, list) else []), *missing]})
