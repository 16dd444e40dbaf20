"""Graphs as data: documents, what is wrong with them, and the plan of their nodes. Pure: no file is touched
and nothing is run.
"""

from .content import Endpoint
from .definitions import Definitions, catalog_hash, definition_hash
from .document import Document
from .expand import expand
from .flat import FlatEdge, FlatGraph, FlatNode, Trigger
from .issues import GraphInvalid, Issue, IssueCode
from .needs import embed_presets, node_types
from .plan import Plan, PlanNode, Source, plan
from .ports import joins, ports
from .preset_plan import PresetPlan, preset_plan
from .validate import validate

__all__ = [
    "Definitions",
    "Document",
    "Endpoint",
    "FlatEdge",
    "FlatGraph",
    "FlatNode",
    "GraphInvalid",
    "Issue",
    "IssueCode",
    "Plan",
    "PlanNode",
    "PresetPlan",
    "Source",
    "Trigger",
    "catalog_hash",
    "definition_hash",
    "embed_presets",
    "expand",
    "joins",
    "node_types",
    "plan",
    "ports",
    "preset_plan",
    "validate",
]
