"""Stopping the server from this machine."""

import ipaddress
from typing import TYPE_CHECKING, Literal

from aiohttp import web
from pydantic import BaseModel, ConfigDict

from codefyui_core.errors import CodefyError
from codefyui_core.plugin.http import Auth, Caller, Route

from .answers import json_response
from .bodies import body_of

if TYPE_CHECKING:
    from codefyui_core.control.plane import ControlPlane


class StopBody(BaseModel):
    """What becomes of the runs on workers."""

    model_config = ConfigDict(extra="forbid")

    runs: Literal["stop", "keep"] = "stop"


class Stopping(BaseModel):
    """It goes down now."""

    stopping: bool
    runs: str
    active: int
    """Runs that are executing as it begins to stop."""


class AtStop(BaseModel):
    """What a stop would do to the runs that aren't over."""

    own: int
    on_workers: int
    waiting: int
    waiting_with_secrets: int
    durable: bool
    if_kept: list[str]
    """In words, with the runs on workers left executing."""
    if_stopped: list[str]


def routes(plane: "ControlPlane") -> list[Route]:
    async def look(request: web.Request, caller: Caller) -> web.StreamResponse:
        return json_response(plane.runs.numbers.at_stop().row())

    async def stop(request: web.Request, caller: Caller) -> web.StreamResponse:
        if not is_loopback(request.remote):
            raise CodefyError("The server is stopped from its own machine only.", code="auth.token")
        body = await body_of(request, StopBody)
        active = plane.runs.numbers.counts().get("running", 0)
        plane.ask_to_stop(keep=body.runs == "keep")
        return json_response(Stopping(stopping=True, runs=body.runs, active=active).model_dump())

    return [
        Route(
            method="GET",
            path="/api/server/stop",
            handler=look,
            auth=Auth.SESSION,
            response=AtStop,
            summary="What stopping this server would do to how many runs",
        ),
        Route(
            method="POST",
            path="/api/server/stop",
            handler=stop,
            auth=Auth.SESSION,
            request=StopBody,
            response=Stopping,
            summary="Stop this server; from its own machine only",
        ),
    ]


def is_loopback(peer: str | None) -> bool:
    """A Unix socket has no peer address and counts as local."""
    if not peer:
        return True
    try:
        return ipaddress.ip_address(peer.partition("%")[0]).is_loopback
    except ValueError:
        return False
