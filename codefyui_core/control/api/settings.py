"""Settings as they are now. Changing one is the administrator's work, in the environment or the .env file."""

from typing import TYPE_CHECKING, Any

from aiohttp import web
from pydantic import BaseModel

from codefyui_core.plugin.http import Auth, Caller, Route
from codefyui_core.settings import ControlSettings, FolderSettings, describe

from .answers import json_response
from .models import Settings

if TYPE_CHECKING:
    from codefyui_core.control.plane import ControlPlane


class Reload(BaseModel):
    """What reading the file again did."""

    changed: list[str]
    needs_restart: list[str]


def routes(plane: "ControlPlane") -> list[Route]:
    async def listing(request: web.Request, caller: Caller) -> web.StreamResponse:
        return json_response({"settings": rows(plane)})

    async def reload(request: web.Request, caller: Caller) -> web.StreamResponse:
        changed, needs_restart = plane.reload_settings()
        return json_response(Reload(changed=changed, needs_restart=needs_restart).model_dump())

    return [
        Route(
            method="GET",
            path="/api/settings",
            handler=listing,
            auth=Auth.OPEN,
            response=Settings,
            summary="All settings",
        ),
        Route(
            method="POST",
            path="/api/settings/reload",
            handler=reload,
            auth=Auth.SESSION,
            response=Reload,
            errors=("usage",),
            summary="Read the .env file again, for the settings of plugins",
        ),
    ]


def rows(plane: "ControlPlane") -> list[dict[str, Any]]:
    """The folders', the core's as the server was started with them, then each plugin's as they are now."""
    started = plane.install.layers
    found = [*describe(FolderSettings, started), *describe(ControlSettings, started)]
    for cls, owner in plane.plugin_settings():
        found += describe(cls, plane.layers, owner)
    unique = {row.name: row for row in found}
    return [dict(row.to_json()) for row in unique.values()]
