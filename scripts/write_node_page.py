"""Writes docs/nodes.md from the definitions of the node catalogs that come with CodefyUI."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from codefyui_core.loading import load, load_nodes
from codefyui_core.plugin import NodeDefinition, Param, Port, Preset

PAGE = Path(__file__).parents[1] / "docs" / "nodes.md"
CATALOGS = ("builtin", "torch")
SHOWN_DEFAULT = 40
"""Longer default values are described, not shown."""

HEAD = """\
# Nodes

Every node type that comes with CodefyUI, by category. `scripts/write_node_page.py` writes this page from the
definitions themselves; a test fails when the two differ. What ports, params and types mean is in [graphs](graphs.md);
how to add nodes of your own is in [plugins](plugins.md).

A port marked *optional* may stay unwired. A param that isn't given has the default. Types of ports are those of
[graphs](graphs.md#types-of-wires).
"""


def definitions() -> list[NodeDefinition]:
    """Of the catalogs of this repository."""
    return [one.definition for one in load_nodes(load(plane=None), CATALOGS).nodes.values()]


def presets() -> list[Preset]:
    """Of the same catalogs."""
    found = (one for one in load(plane=None).catalogs if one.name in CATALOGS)
    return [preset for catalog in found for preset in catalog.presets()]


def page(nodes: Iterable[NodeDefinition], groups: Iterable[Preset]) -> str:
    """The whole page."""
    by_category: dict[str, list[NodeDefinition]] = {}
    for node in sorted(nodes, key=lambda one: (one.category.lower(), one.type.lower())):
        by_category.setdefault(node.category, []).append(node)
    parts = [HEAD, _contents(by_category)]
    for category, members in by_category.items():
        parts += [f"## {category}\n", *(section(node) for node in members)]
    return "\n".join([*parts, _presets(groups)])


def _contents(by_category: dict[str, list[NodeDefinition]]) -> str:
    lines = ["| category | nodes |", "|---|---|"]
    for category, members in by_category.items():
        links = ", ".join(f"[{node.type}](#{node.type.lower()})" for node in members)
        lines.append(f"| {category} | {links} |")
    return "\n".join([*lines, ""])


def section(node: NodeDefinition) -> str:
    """One node: what it does, its ports, its params."""
    lines = [f"### {node.type}", "", node.description, ""]
    lines += _ports("in", node.inputs) + _ports("out", node.outputs)
    if node.params:
        lines += ["", "| param | kind | default | meaning |", "|---|---|---|---|", *map(_param, node.params)]
    return "\n".join([*lines, ""])


def _ports(side: str, ports: Sequence[Port]) -> list[str]:
    return [f"- {side} `{port.name}` {port.type}{_about(port)}" for port in ports]


def _about(port: Port) -> str:
    notes = ["optional"] if port.optional else []
    if port.repeat is not None:
        notes.append(f"{port.repeat.minimum} to {port.repeat.maximum} of them, as `{port.repeat.param}` says")
    noted = f" (*{', '.join(notes)}*)" if notes else ""
    return f"{noted}: {port.description}" if port.description else noted


def _param(param: Param) -> str:
    options = f": {', '.join(param.options)}" if param.options else ""
    cells = (f"`{param.name}`", f"{param.kind}{options}", _default(param), _meaning(param))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(param: Param) -> str:
    text = json.dumps(param.default, ensure_ascii=False)
    return f"`{text}`" if len(text) <= SHOWN_DEFAULT else f"{len(text)} characters"


def _meaning(param: Param) -> str:
    bounds = [f"at least {param.minimum:g}"] if param.minimum is not None else []
    bounds += [f"at most {param.maximum:g}"] if param.maximum is not None else []
    words = [param.description] if param.description else []
    return "; ".join([*words, *bounds])


def _presets(groups: Iterable[Preset]) -> str:
    lines = ["## Presets", "", "| preset | in | out | what it is |", "|---|---|---|---|"]
    for group in groups:
        document = json.loads(json.dumps(group.document))
        sides = (
            ", ".join(f"`{port['name']}` {port['data_type']}" for port in document[key])
            for key in ("exposed_inputs", "exposed_outputs")
        )
        lines.append(f"| {document['preset_name']} | {' | '.join(sides)} | {document['description']} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(definitions(), presets()), encoding="utf-8")
    sys.stdout.write(f"{PAGE} is written.\n")
