"""The aiohttp application of a control plane."""

from collections.abc import Sequence
from typing import Any

from aiohttp import web

from codefyui_core.errors import CodefyError
from codefyui_core.loading import check_routes
from codefyui_core.plugin.http import Auth

from . import pages
from .api import (
    artifacts,
    devices,
    events,
    graphs,
    health,
    metrics,
    nodes,
    openapi,
    outputs,
    plugins,
    runs,
    server,
    settings,
    uploads,
    workers,
)
from .api.answers import json_response
from .api.cors import allow_origins, preflight_middleware
from .api.errors import errors_middleware, name_answer
from .api.routing import Gate, OwnedRoute, mount
from .callers import PlaneCallers
from .plane import ControlPlane

CORE = "codefyui-core"
RESOURCES = (
    health,
    nodes,
    plugins,
    graphs,
    uploads,
    runs,
    artifacts,
    outputs,
    events,
    workers,
    devices,
    settings,
    server,
    metrics,
)


def core_routes(plane: ControlPlane) -> list[OwnedRoute]:
    """The core's own, by the same dataclass as a plugin's."""
    return [OwnedRoute(route=route, owner=CORE) for resource in RESOURCES for route in resource.routes(plane)]


def all_routes(plane: ControlPlane) -> list[OwnedRoute]:
    """Core and plugins; two that claim one route stop the start.

    Raises: PluginConflict.
    """
    routes = [*core_routes(plane), *plane.halves.routes()]
    check_routes([(owned.owner, owned.route) for owned in routes])
    return routes


def make_app(plane: ControlPlane) -> web.Application:
    """The application for the server's own port."""
    app = web.Application(
        middlewares=[
            plane.http_metrics.middleware(),
            errors_middleware(plane.log.getChild("http"), debug=plane.settings.debug),
            host_middleware(plane),
            preflight_middleware(plane.settings.cors_origins),
        ],
        client_max_size=plane.settings.max_run_body_bytes,
    )
    app.on_response_prepare.append(name_answer)
    app.on_response_prepare.append(allow_origins(plane.settings.cors_origins))
    app.on_shutdown.append(_end_streams(plane))
    routes = all_routes(plane)
    gate = Gate(token=lambda: plane.token, workers=PlaneCallers(plane))
    mount(app, routes, gate, plane.settings.max_run_body_bytes, plane.clock)
    plane.link_routes = link_routes(routes)
    app.router.add_get("/ws/worker", plane.workers.handle)
    document = openapi.describe(routes, version=plane.version)
    app.router.add_get("/openapi.json", _answer(document))
    pages.mount(app, plane, document)
    return app


def _answer(document: dict[str, Any]) -> Any:
    async def handler(request: web.Request) -> web.StreamResponse:
        return json_response(document)

    return handler


def _end_streams(plane: ControlPlane) -> Any:
    async def end(app: web.Application) -> None:
        plane.over.set()

    return end


def host_middleware(plane: ControlPlane) -> Any:
    """Refuses Host names that aren't this server's, before anything else is looked at."""

    @web.middleware
    async def middleware(request: web.Request, handler: Any) -> web.StreamResponse:
        if not plane.guard.allows(request.headers.get("Host", "")):
            host = request.headers.get("Host", "")
            raise CodefyError(
                f"This server doesn't answer to the host name {host[:200]!r}. If it is yours, add it to "
                "CODEFYUI_EXTRA_ALLOWED_HOSTS and start the server again.",
                code="host.not_allowed",
            )
        response: web.StreamResponse = await handler(request)
        return response

    return middleware


def link_routes(routes: Sequence[OwnedRoute]) -> list[OwnedRoute]:
    """What a link's private listener answers; everything else is 404 there."""
    always = {Auth.ENROLLMENT, Auth.WORKER, Auth.RUN_WORKER}
    return [owned for owned in routes if owned.route.on_links or owned.route.auth in always]
