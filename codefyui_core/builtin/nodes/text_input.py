"""TextInput: a text that is typed on the canvas."""

from collections.abc import Mapping
from typing import Any

from codefyui_core.plugin import DataType, Node, NodeContext, Param, ParamKind, Port


class TextInput(Node):
    type = "TextInput"
    category = "Data"
    description = "Gives the text that is typed into it."
    outputs = (Port(name="text", type=DataType.STRING, description="The text"),)
    params = (
        Param(
            name="value",
            kind=ParamKind.STRING,
            default="A graph is worth a thousand lines.",
            description="The text to give",
        ),
    )

    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        return {"text": str(params["value"])}
