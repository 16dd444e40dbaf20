"""Print: writes a value to the run's log and passes it on."""

from collections.abc import Mapping
from typing import Any

from codefyui_core.plugin import DataType, Node, NodeContext, Param, ParamKind, Port


class Print(Node):
    type = "Print"
    category = "Utility"
    description = "Writes the value to the log, after the label if there is one, and passes it on unchanged."
    inputs = (Port(name="value", type=DataType.ANY, description="What to write"),)
    outputs = (Port(name="value", type=DataType.ANY, description="The same value"),)
    params = (Param(name="label", kind=ParamKind.STRING, default="", description="Written before the value"),)

    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        value, label = inputs["value"], params["label"]
        context.log(f"[{label}] {value}" if label else str(value))
        return {"value": value}
