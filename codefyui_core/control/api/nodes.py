"""Node types and presets in the names of the reference."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aiohttp import web
from pydantic import BaseModel

from codefyui_core.errors import CodefyError
from codefyui_core.plugin.http import Auth, Caller, Route
from codefyui_core.plugin.node import NodeDefinition, Param, Port

from .answers import json_response
from .models import NodeRow, Nodes, PresetRow, Presets

if TYPE_CHECKING:
    from codefyui_core.control.plane import ControlPlane


class Reloaded(BaseModel):
    """How many definitions there are now."""

    builtin: int
    custom: int
    plugins: int
    presets: int
    total: int


def routes(plane: "ControlPlane") -> list[Route]:
    async def nodes(request: web.Request, caller: Caller) -> web.StreamResponse:
        catalog = plane.catalog.ready()
        return json_response(
            [node_row(node, catalog.providers) for node in catalog.definitions.nodes.values()]
        )

    async def node(request: web.Request, caller: Caller) -> web.StreamResponse:
        catalog = plane.catalog.ready()
        name = request.match_info["name"]
        found = catalog.definitions.nodes.get(name)
        if found is None:
            raise CodefyError(f"There is no node type {name} here.", code="node.not_found")
        return json_response(node_row(found, catalog.providers))

    async def presets(request: web.Request, caller: Caller) -> web.StreamResponse:
        return json_response(list(plane.catalog.ready().definitions.presets.values()))

    async def preset(request: web.Request, caller: Caller) -> web.StreamResponse:
        name = request.match_info["name"]
        found = plane.catalog.ready().definitions.presets.get(name)
        if found is None:
            raise CodefyError(f"There is no preset {name} here.", code="preset.not_found")
        return json_response(found)

    async def reload(request: web.Request, caller: Caller) -> web.StreamResponse:
        catalog = await plane.catalog.reload()
        kinds = list(catalog.providers.values())
        return json_response(
            Reloaded(
                builtin=kinds.count("builtin"),
                custom=kinds.count("custom"),
                plugins=sum(kind.startswith("plugin:") for kind in kinds),
                presets=len(catalog.definitions.presets),
                total=len(catalog.definitions.nodes),
            ).model_dump()
        )

    loading = ("catalog.loading",)
    return [
        Route(
            method="GET",
            path="/api/nodes",
            handler=nodes,
            auth=Auth.OPEN,
            response=Nodes,
            errors=loading,
            summary="All node types",
        ),
        Route(
            method="GET",
            path="/api/nodes/{name}",
            handler=node,
            auth=Auth.OPEN,
            response=NodeRow,
            errors=(*loading, "node.not_found"),
            summary="One node type",
        ),
        Route(
            method="GET",
            path="/api/presets",
            handler=presets,
            auth=Auth.OPEN,
            response=Presets,
            errors=loading,
            summary="All presets",
        ),
        Route(
            method="GET",
            path="/api/presets/{name}",
            handler=preset,
            auth=Auth.OPEN,
            response=PresetRow,
            errors=(*loading, "preset.not_found"),
            summary="One preset",
        ),
        Route(
            method="POST",
            path="/api/nodes/reload",
            handler=reload,
            auth=Auth.SESSION,
            errors=loading,
            response=Reloaded,
            summary="Read all node types again",
        ),
    ]


def node_row(node: NodeDefinition, providers: Mapping[str, str]) -> dict[str, Any]:
    """A definition as clients know it; the one place that maps names."""
    return {
        "name": node.type,
        "category": node.category,
        "description": node.description,
        "inputs": [port_row(port) for port in node.inputs],
        "outputs": [port_row(port) for port in node.outputs],
        "params": [param_row(param) for param in node.params],
        "provider": providers.get(node.type, "builtin"),
        "cacheable": node.cacheable,
        "stateful": node.stateful,
    }


def port_row(port: Port) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": port.name,
        "data_type": str(port.type),
        "description": port.description,
        "optional": port.optional,
    }
    if port.repeat is not None:
        row["repeat"] = port.repeat.model_dump(mode="json")
    if port.media is not None:
        row["media"] = port.media
    return row


def param_row(param: Param) -> dict[str, Any]:
    return {
        "name": param.name,
        "param_type": param.kind.value,
        "default": param.default,
        "description": param.description,
        "options": list(param.options),
        "min_value": param.minimum,
        "max_value": param.maximum,
        "visible_when": dict(param.visible_when),
        "advanced": param.advanced,
    }
