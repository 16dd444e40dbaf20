"""The short-lived process that imports node classes and writes down all that others know of them.

``python -m codefyui_core.runner.helper REQUEST OUT``: REQUEST is JSON (``block``, ``only``, ``catalogs``), OUT the
file to write. Modules may print what they like; the caller reads OUT only after exit status 0.
"""

import json
import sys
from collections.abc import Collection
from pathlib import Path

from codefyui_core.files import write_private
from codefyui_core.loading import LoadedNode, Registry, load, load_nodes
from codefyui_core.plugin.node import CatalogProblem
from codefyui_core.plugin.values import JsonObject

from .catalogs import chosen, data_types, presets
from .devices import devices
from .fingerprint import digest, fingerprint
from .requests import origin


def describe(registry: Registry, catalogs: Collection[str] | None = None) -> JsonObject:
    """A catalog as ``Catalog.from_json`` reads it.

    Raises: PluginConflict.
    """
    loaded = load_nodes(registry, catalogs)
    brought = list(presets(registry, catalogs))
    problems = [*loaded.problems, *(one for one in brought if isinstance(one, CatalogProblem))]
    environment = fingerprint(registry, origin())
    found = list(chosen(registry, catalogs))
    return {
        "definitions": {
            "nodes": [one.definition.model_dump(mode="json") for one in loaded.nodes.values()],
            "presets": [one.document for one in brought if not isinstance(one, CatalogProblem)],
            "data_types": list(data_types(registry, catalogs)),
        },
        "providers": {name: provider(one) for name, one in loaded.nodes.items()},
        "problems": [{"source": one.source, "message": one.message} for one in problems],
        "devices": [one.model_dump(mode="json") for one in devices()],
        "fingerprint": environment,
        "digest": digest(environment),
        "examples": [str(path) for one in found if (path := one.examples()) is not None],
        "watch": [str(path) for one in found for path in one.watch],
    }


def provider(node: LoadedNode) -> str:
    """How the list of nodes calls the one who brought a type."""
    if node.catalog in ("builtin", "custom") and node.provider == "codefyui-core":
        return node.catalog
    return f"plugin:{node.provider}"


def main(request: str, out: str) -> None:
    asked = json.loads(request)
    registry = load(plane=None, block=asked["block"], only=asked["only"])
    document = describe(registry, asked["catalogs"])
    write_private(Path(out), json.dumps(document).encode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
