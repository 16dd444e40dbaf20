"""What can be wrong with a graph: a stable code, the node that is meant, and a sentence for people."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import JsonValue

from ..errors import CodefyError
from ..plugin.values import JsonObject


class IssueCode(StrEnum):
    """The closed list. The editor translates codes, so one never changes its meaning."""

    NOT_JSON = "not_json"
    MALFORMED_DOCUMENT = "malformed_document"
    MALFORMED_NODE = "malformed_node"
    MALFORMED_EDGE = "malformed_edge"
    SETTINGS_INVALID = "settings_invalid"
    TOO_LARGE = "too_large"
    DUPLICATE_ID = "duplicate_id"

    UNKNOWN_NODE_TYPE = "unknown_node_type"
    UNKNOWN_PRESET = "unknown_preset"
    UNKNOWN_SUBGRAPH = "unknown_subgraph"

    PARAM_NOT_NUMBER = "param_not_number"
    PARAM_WRONG_TYPE = "param_wrong_type"
    PARAM_BELOW_MIN = "param_below_min"
    PARAM_ABOVE_MAX = "param_above_max"
    PARAM_NOT_IN_OPTIONS = "param_not_in_options"

    EDGE_SOURCE_MISSING = "edge_source_missing"
    EDGE_TARGET_MISSING = "edge_target_missing"
    TRIGGER_SOURCE_MISSING = "trigger_source_missing"
    TRIGGER_TARGET_MISSING = "trigger_target_missing"
    INVALID_OUTPUT_PORT = "invalid_output_port"
    INVALID_INPUT_PORT = "invalid_input_port"
    TYPE_MISMATCH = "type_mismatch"
    INPUT_WIRED_TWICE = "input_wired_twice"
    MISSING_INPUT = "missing_input"

    PRESET_UNREADABLE = "preset_unreadable"
    PRESET_INPUT_NOT_EXPOSED = "preset_input_not_exposed"
    PRESET_OUTPUT_NOT_EXPOSED = "preset_output_not_exposed"
    PRESET_TRIGGERED_EMPTY = "preset_triggered_empty"
    PRESET_TRIGGERED_ALL_FED = "preset_triggered_all_fed"
    PRESET_RECURSION = "preset_recursion"
    PRESET_NOT_MAPPABLE = "preset_not_mappable"
    SUBGRAPH_UNREADABLE = "subgraph_unreadable"
    SUBGRAPH_TRIGGERED_EMPTY = "subgraph_triggered_empty"
    SUBGRAPH_RECURSION = "subgraph_recursion"
    SUBGRAPH_IN_PRESET = "subgraph_in_preset"
    NESTING_TOO_DEEP = "nesting_too_deep"
    BYPASS_NOT_ALLOWED = "bypass_not_allowed"

    SWITCH_SELECTOR_OUT_OF_RANGE = "switch_selector_out_of_range"
    SWITCH_SELECTED_UNWIRED = "switch_selected_unwired"
    SWITCH_INPUT_TYPES_DIFFER = "switch_input_types_differ"

    NO_ENTRY_POINTS = "no_entry_points"
    CYCLE = "cycle"


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing wrong."""

    message: str
    code: str
    node_id: str | None = None
    """A node of the submitted document. For one inside a preset or subgraph, its outermost instance there;
    ``params["inner_node"]`` then has the id after expansion."""
    params: Mapping[str, JsonValue] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        return {
            "message": self.message,
            "code": str(self.code),
            "node_id": self.node_id,
            "params": dict(self.params),
        }


class GraphInvalid(CodefyError):
    """A graph that can't run as it is; ``issues`` says why, node by node."""

    default_code = "graph.invalid"

    def __init__(self, issues: Iterable[Issue]) -> None:
        self.issues = tuple(issues)
        first = self.issues[0].message if self.issues else "The graph is invalid."
        more = len(self.issues) - 1
        super().__init__(f"{first} ({more} more problem{'s' * (more > 1)})" if more > 0 else first)
