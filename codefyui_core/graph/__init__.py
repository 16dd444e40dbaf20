"""Graphs as data: documents, what is wrong with them, and the plan of their nodes. Pure: no file is touched
and nothing is run.
"""

from .content import Endpoint
from .definitions import Definitions, catalog_hash, definition_hash
from .document import Document
from .expand import expand
from .files_used import FileLook, Seen, files_used, size_text
from .flat import FlatEdge, FlatGraph, FlatNode, Trigger
from .issues import GraphInvalid, Issue, IssueCode
from .needs import embed_presets, node_types
from .plan import Plan, PlanNode, Source, plan
from .ports import joins, ports
from .preset_plan import PresetPlan, preset_plan
from .secrets import SecretParam, SecretValues, blank_secrets, fill_secrets, secret_params
from .validate import validate

__all__ = [
    "Definitions",
    "Document",
    "Endpoint",
    "FileLook",
    "FlatEdge",
    "FlatGraph",
    "FlatNode",
    "GraphInvalid",
    "Issue",
    "IssueCode",
    "Plan",
    "PlanNode",
    "PresetPlan",
    "SecretParam",
    "SecretValues",
    "Seen",
    "Source",
    "Trigger",
    "blank_secrets",
    "catalog_hash",
    "definition_hash",
    "embed_presets",
    "expand",
    "files_used",
    "fill_secrets",
    "joins",
    "node_types",
    "plan",
    "ports",
    "preset_plan",
    "secret_params",
    "size_text",
    "validate",
]
