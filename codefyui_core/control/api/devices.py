"""How runs are admitted to single cards: so many at once, or as many as the free memory takes."""

from typing import TYPE_CHECKING

from aiohttp import web
from pydantic import BaseModel, ConfigDict

from codefyui_core.plugin.http import Auth, Caller, Route
from codefyui_core.runs.sharing import Policy

from .answers import json_response
from .bodies import body_of

if TYPE_CHECKING:
    from codefyui_core.control.plane import ControlPlane


class DeviceBody(BaseModel):
    """What is to change of a device."""

    model_config = ConfigDict(extra="forbid")

    policy: Policy


class DevicePolicy(BaseModel):
    """How a device admits runs from now on."""

    name: str
    """Of the worker; ``server`` for the server itself."""
    device: str
    policy: Policy


def routes(plane: "ControlPlane") -> list[Route]:
    async def own(request: web.Request, caller: Caller) -> web.StreamResponse:
        body = await body_of(request, DeviceBody)
        return json_response(await plane.runs.set_own_policy(request.match_info["device"], body.policy))

    async def workers(request: web.Request, caller: Caller) -> web.StreamResponse:
        body = await body_of(request, DeviceBody)
        name, device = request.match_info["name"], request.match_info["device"]
        return json_response(await plane.workers.set_policy(name, device, body.policy))

    return [
        Route(
            method="PATCH",
            path="/api/system/devices/{device}",
            handler=own,
            auth=Auth.SESSION,
            request=DeviceBody,
            response=DevicePolicy,
            errors=("device.not_found", "request.invalid"),
            summary="Admit runs to one of the server's cards by count or by memory",
        ),
        Route(
            method="PATCH",
            path="/api/workers/{name}/devices/{device}",
            handler=workers,
            auth=Auth.SESSION,
            request=DeviceBody,
            response=DevicePolicy,
            errors=("worker.not_found", "device.not_found", "request.invalid"),
            summary="Admit runs to a worker's card by count or by memory",
        ),
    ]
