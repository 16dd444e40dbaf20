"""Which nodes of a plan nobody needs: what feeds only inputs that a node with these params doesn't look at."""

from collections.abc import Mapping

from codefyui_core.graph import Plan
from codefyui_core.plugin.node import Node


def needed(
    plan: Plan, classes: Mapping[str, type[Node]], wanted: frozenset[str] = frozenset()
) -> tuple[frozenset[str], Mapping[str, frozenset[str]]]:
    """The nodes to execute, and for those that choose among their inputs, the ports that matter.

    A node counts as needed when nothing follows it, when it is ``wanted`` for itself, or when something needed looks at one of its outputs.
    """
    chosen: dict[str, frozenset[str]] = {}
    for node in plan.nodes.values():
        ports = classes[node.type].needed_inputs(node.params, frozenset(node.inputs))
        if ports is not None:
            chosen[node.id] = ports
    if not chosen:
        return frozenset(plan.nodes), chosen
    followed = {source.node_id for node in plan.nodes.values() for source in node.inputs.values()}
    kept: set[str] = set(wanted)
    for level in reversed(plan.levels):
        for node_id in level:
            if node_id in followed and node_id not in kept:
                continue
            kept.add(node_id)
            matter = chosen.get(node_id)
            for port, source in plan.nodes[node_id].inputs.items():
                if matter is None or port in matter:
                    kept.add(source.node_id)
    return frozenset(kept), chosen
