"""From installed distributions to a Registry: reads entry points, asks the hooks, checks every answer.

Nothing of a plugin is trusted here except that it names itself; nothing of a plane is known here.
"""

from .conflicts import NameKind, PluginConflict
from .load import load
from .node_types import LoadedNode, LoadedNodes, check_node_types, load_nodes
from .options import AgentOption
from .registry import Registry
from .routes import RouteProblem, check_routes

__all__ = [
    "AgentOption",
    "LoadedNode",
    "LoadedNodes",
    "NameKind",
    "PluginConflict",
    "Registry",
    "RouteProblem",
    "check_node_types",
    "check_routes",
    "load",
    "load_nodes",
]
