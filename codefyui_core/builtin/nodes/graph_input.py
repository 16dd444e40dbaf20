"""GraphInput: an argument of the graph when it runs as a function."""

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from codefyui_core.plugin import DataType, Folders, Node, NodeContext, Param, ParamKind, Port

from .coercion import InputType, from_json, from_text
from .image_value import image_from_base64, image_from_file, image_path


class GraphInput(Node):
    type = "GraphInput"
    category = "IO"
    description = "Names an argument of the graph. On the canvas it gives its default."
    outputs = (Port(name="value", type=DataType.ANY, description="The argument, or the default"),)
    params = (
        Param(name="name", kind=ParamKind.STRING, default="input", description="Name in the call"),
        Param(
            name="type",
            kind=ParamKind.SELECT,
            default="string",
            options=tuple(one.value for one in InputType),
            description="What a caller may pass",
        ),
        Param(name="required", kind=ParamKind.BOOL, default=True, description="A call without it is refused"),
        Param(
            name="default",
            kind=ParamKind.STRING,
            default="",
            description="Used when nothing is passed; for an image, a file below the images folder",
        ),
        Param(
            name="description", kind=ParamKind.STRING, default="", description="What it means, for callers"
        ),
    )

    @classmethod
    def fingerprint(cls, params: Mapping[str, JsonValue], folders: Folders) -> str | None:
        if "value" in params or params.get("type") != InputType.IMAGE:
            return None
        status = image_path(folders, str(params.get("default", ""))).stat()
        return f"{status.st_size}-{status.st_mtime_ns}"

    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        """``value`` among the params is what a caller passed; it is no declared parameter, so that the canvas
        can't show or save it.
        """
        name, kind = str(params["name"]), InputType(params["type"])
        if kind is not InputType.IMAGE:
            given = from_json(name, kind, params["value"]) if "value" in params else None
            return {"value": given if "value" in params else from_text(name, kind, str(params["default"]))}
        if "value" in params:
            return {"value": image_from_base64(name, params["value"])}
        return {"value": image_from_file(name, image_path(context.folders, str(params["default"])))}
