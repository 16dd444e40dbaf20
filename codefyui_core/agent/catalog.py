"""What an agent says of its node definitions: the hash in hello, types and their hashes when they are asked for."""

from codefyui_core.graph.definitions import definition_hash
from codefyui_core.runner.definitions import Catalog
from codefyui_core.wire.limits import MESSAGE_BYTES
from codefyui_core.wire.messages import CatalogMessage

ENTRY_BYTES = 64 + len('"":"",')
"""Of a type in the message, beside its name."""


def catalog_message(catalog: Catalog) -> CatalogMessage:
    """Hashes every definition. Blocking."""
    nodes = catalog.definitions.nodes
    types = {name: definition_hash(definition) for name, definition in nodes.items()}
    return CatalogMessage(hash=catalog.definitions.hash, types=types)


def oversize(catalog: Catalog) -> str:
    """Why the message can't be sent; empty when it can. Such an agent reports none, so its runs aren't checked."""
    names = catalog.definitions.nodes
    size = sum(len(name.encode()) + ENTRY_BYTES for name in names)
    if size <= MESSAGE_BYTES - 1024:
        return ""
    return f"{len(names)} node types are {size} bytes, and a message has {MESSAGE_BYTES} at most"
