"""What is installed, and what became of it."""

from typing import TYPE_CHECKING, Any

from aiohttp import web

from codefyui_core.plugin.http import Auth, Caller, Route
from codefyui_core.plugin.views import PluginInfo

from .answers import json_response
from .models import Plugins

if TYPE_CHECKING:
    from codefyui_core.control.plane import ControlPlane


def routes(plane: "ControlPlane") -> list[Route]:
    async def plugins(request: web.Request, caller: Caller) -> web.StreamResponse:
        catalog = plane.catalog.current
        return json_response(
            {
                "plugins": [plugin_row(info) for info in plane.registry.plugins],
                "problems": [
                    {"source": problem.source, "message": problem.message}
                    for problem in (catalog.problems if catalog else ())
                ],
                "conditions": dict(plane.halves.conditions()),
            }
        )

    return [
        Route(
            method="GET",
            path="/api/plugins",
            handler=plugins,
            auth=Auth.OPEN,
            response=Plugins,
            summary="Installed plugins",
        )
    ]


def plugin_row(info: PluginInfo) -> dict[str, Any]:
    """One plugin; the same object that ``cdui plugin list --json`` prints."""
    return {
        "entry_point": info.entry_point,
        "distribution": info.distribution,
        "version": info.version,
        "revision": info.revision,
        "state": info.state.value,
        "brings": list(info.brings),
        "hooks": list(info.hooks),
        "error": info.error,
    }
