"""The few node types that the format itself names, and its reserved words."""

START = "Start"
SWITCH = "Switch"
NOTE = "note"
CONTRACT = frozenset({"GraphInput", "GraphOutput"})
"""The nodes that make a graph a function."""

PRESET_PREFIX = "preset:"
SUBGRAPH_PREFIX = "subgraph:"

TRIGGER_PORT = "trigger"
TRIGGER_HANDLE = "__trigger"
TRIGGER_TYPE = "trigger"
"""Of an edge."""
