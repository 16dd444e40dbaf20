"""GraphOutput: a result of the graph when it runs as a function."""

from collections.abc import Mapping
from typing import Any

from codefyui_core.plugin import DataType, Node, NodeContext, Param, ParamKind, Port


class GraphOutput(Node):
    type = "GraphOutput"
    category = "IO"
    description = "Names a result of the graph, for those who run it as a function."
    inputs = (Port(name="value", type=DataType.ANY, description="The result"),)
    params = (
        Param(name="name", kind=ParamKind.STRING, default="output", description="Name in the answer"),
        Param(
            name="description", kind=ParamKind.STRING, default="", description="What it means, for callers"
        ),
    )

    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        return {"value": inputs["value"]}
