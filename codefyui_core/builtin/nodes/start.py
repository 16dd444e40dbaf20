"""Start: its trigger wires decide where a graph begins."""

from collections.abc import Mapping
from typing import Any

from codefyui_core.plugin import DataType, Node, NodeContext, Port


class Start(Node):
    type = "Start"
    category = "Control"
    description = (
        "Where a run begins: what its trigger is wired to runs, with all that feeds it and follows it."
    )
    outputs = (Port(name="trigger", type=DataType.TRIGGER),)

    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        return {}
