"""Is it up, what is it waiting for, what does this machine compute on."""

from typing import TYPE_CHECKING, Any

from aiohttp import web
from pydantic import BaseModel

from codefyui_core.plugin.http import Auth, Caller, Route
from codefyui_core.runs.sharing import Policy
from codefyui_core.wire.messages import DeviceInfo

from .answers import json_response

if TYPE_CHECKING:
    from codefyui_core.control.plane import ControlPlane


class Health(BaseModel):
    """The state of the server."""

    status: str
    """starting, ready or stopping."""
    waiting_for: list[str]
    version: str
    boot_id: str
    nodes_loaded: int
    presets_loaded: int
    caches: dict[str, int] = {}
    project: str | None = None


class Bootstrap(BaseModel):
    """What a page needs to call the routes that change something."""

    token: str


class DeviceRow(BaseModel):
    """One device of this machine."""

    value: str
    label: str
    detail: str
    available: bool
    slots: int
    used: int
    policy: Policy
    memory_total_bytes: int | None
    memory_free_bytes: int | None
    """Of a card that is shared by memory, as measured last."""


class Devices(BaseModel):
    """What runs on this server can compute on."""

    default: str
    devices: list[DeviceRow]


def routes(plane: "ControlPlane") -> list[Route]:
    async def health(request: web.Request, caller: Caller) -> web.StreamResponse:
        return json_response(health_of(plane))

    async def bootstrap(request: web.Request, caller: Caller) -> web.StreamResponse:
        response = json_response({"token": plane.token})
        response.headers["Cache-Control"] = "no-store"
        return response

    async def devices(request: web.Request, caller: Caller) -> web.StreamResponse:
        return json_response(devices_of(plane))

    return [
        Route(
            method="GET",
            path="/api/health",
            handler=health,
            auth=Auth.OPEN,
            response=Health,
            summary="Health",
        ),
        Route(
            method="GET",
            path="/api/auth/bootstrap",
            handler=bootstrap,
            auth=Auth.OPEN,
            response=Bootstrap,
            summary="The session token, for pages that this server sent",
        ),
        Route(
            method="GET",
            path="/api/system/devices",
            handler=devices,
            auth=Auth.OPEN,
            response=Devices,
            summary="Devices of this machine",
        ),
    ]


def health_of(plane: "ControlPlane") -> dict[str, Any]:
    """The health as a JSON object."""
    catalog = plane.catalog.current
    return Health(
        status=plane.status,
        waiting_for=list(plane.waiting_for()),
        version=plane.version,
        boot_id=plane.boot_id,
        nodes_loaded=len(catalog.definitions.nodes) if catalog else 0,
        presets_loaded=len(catalog.definitions.presets) if catalog else 0,
        project=str(plane.install.settings.project_dir) if plane.install.settings.project_dir else None,
    ).model_dump()


def _device_row(plane: "ControlPlane", info: DeviceInfo) -> DeviceRow:
    used, slots = plane.runs.numbers.slots().get(("server", info.device), (0, 0))
    return DeviceRow(
        value=info.device,
        label="CPU" if info.device == "cpu" else info.device,
        detail=info.name,
        available=True,
        slots=slots,
        used=used,
        policy=Policy(plane.runs.policy_of("", info.device)),
        memory_total_bytes=info.memory_total_bytes,
        memory_free_bytes=plane.runs.free_here(info.device),
    )


def devices_of(plane: "ControlPlane") -> dict[str, Any]:
    """CPU first; cards as the helper process saw them."""
    catalog = plane.catalog.current
    rows = [_device_row(plane, device) for device in (catalog.devices if catalog else ())]
    if not any(row.value == "cpu" for row in rows):
        rows.insert(0, _device_row(plane, DeviceInfo(device="cpu")))
    return Devices(default="cpu", devices=rows).model_dump()
