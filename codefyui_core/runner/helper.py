"""The short-lived helper process: imports every node and writes down what the planes need to know of them.

``python -m codefyui_core.runner.helper OUT [--block A,B] [--only A,B] [--catalogs A,B]`` writes one JSON
object to OUT, whole or not at all. What node modules print goes to its own stdout and stderr.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from codefyui_core.errors import CodefyError
from codefyui_core.graph import Definitions
from codefyui_core.loading import LoadedNodes, Registry, load, load_nodes
from codefyui_core.plugin.node import CatalogProblem, NodeCatalog
from codefyui_core.plugin.values import JsonObject

from .devices import devices
from .fingerprint import digest, fingerprint
from .linux import die_with_parent, keeps_trees

CORE = "codefyui-core"


def main(argv: Sequence[str] | None = None) -> int:
    ask = argparse.ArgumentParser(prog="codefyui_core.runner.helper")
    ask.add_argument("out", type=Path)
    for option in ("--block", "--only", "--catalogs"):
        ask.add_argument(option)
    given = ask.parse_args(argv)
    if keeps_trees():
        die_with_parent()
    try:
        registry = load(plane=None, block=_names(given.block), only=_names(given.only))
        catalogs = None if given.catalogs is None else _names(given.catalogs)
        answer = describe(registry, catalogs)
    except CodefyError as error:
        answer = {"error": {"message": error.message, "code": error.code}}
    partial = given.out.with_suffix(".part")
    partial.write_text(json.dumps(answer, allow_nan=False), encoding="utf-8")
    partial.replace(given.out)
    return 0


def describe(registry: Registry, catalogs: Sequence[str] | None) -> JsonObject:
    """Definitions of the named catalogs (None: all), devices and fingerprint.

    Raises: PluginConflict for a node type that two distributions have.
    """
    chosen = [c for c in registry.catalogs if catalogs is None or c.name in catalogs]
    loaded = load_nodes(registry, catalogs)
    presets, problems = _presets(chosen)
    definitions = Definitions.of(
        [node.definition for node in loaded.nodes.values()],
        presets,
        [name for catalog in chosen for name in catalog.data_types],
    )
    found = devices()
    facts = fingerprint(registry, tuple(device.name for device in found if device.device != "cpu"))
    return {
        "definitions": definitions.to_json(),
        "providers": _providers(loaded),
        "problems": [
            {"source": problem.source, "message": problem.message}
            for problem in (*loaded.problems, *problems)
        ],
        "devices": [device.model_dump(mode="json") for device in found],
        "fingerprint": facts,
        "digest": digest(facts),
        "examples": [*_examples(chosen)],
    }


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name for name in (text or "").split(",") if name)


def _providers(loaded: LoadedNodes) -> JsonObject:
    """As clients know them: builtin, custom, plugin:<distribution>."""

    def of(catalog: str, provider: str) -> str:
        if provider != CORE:
            return f"plugin:{provider}"
        return "custom" if catalog == "custom" else "builtin"

    return {name: of(node.catalog, node.provider) for name, node in loaded.nodes.items()}


def _presets(catalogs: Sequence[NodeCatalog]) -> tuple[list[JsonObject], list[CatalogProblem]]:
    found: list[JsonObject] = []
    problems = []
    for catalog in catalogs:
        try:
            found += [preset.document for preset in catalog.presets()]
        except Exception as error:
            problems.append(CatalogProblem(source=f"{catalog.name} presets", message=str(error)))
    return found, problems


def _examples(catalogs: Sequence[NodeCatalog]) -> list[str]:
    folders = []
    for catalog in catalogs:
        try:
            folder = catalog.examples()
        except Exception as error:
            sys.stderr.write(f"examples of {catalog.name}: {error}\n")
            continue
        folders += [] if folder is None else [str(folder)]
    return folders


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a node module's threads or exit handlers can't hold the helper up
