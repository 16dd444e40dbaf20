"""A private way in for one link's agent: a socket of its own on the same plane, with what an agent needs only."""

import asyncio
import secrets
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from codefyui_core.errors import CodefyError
from codefyui_core.ids import LinkId

from .api.errors import errors_middleware, name_answer
from .api.routing import LINK, Gate, OwnedRoute, mount
from .callers import PlaneCallers

if TYPE_CHECKING:
    from .plane import ControlPlane

SOCKET_PATH_LIMIT = 100
"""Bytes. The kernel takes 107 on Linux and 103 on macOS (unix(7)); ssh needs a few for its own suffix."""


class LinkListener:
    """Answers the routes that links serve, the worker socket for this link's worker, and 404 to all else."""

    def __init__(self, plane: "ControlPlane", link: LinkId, routes: Sequence[OwnedRoute]) -> None:
        self._plane = plane
        self._link = link
        self._routes = routes
        self._folder: Path | None = None
        self._runner: web.AppRunner | None = None
        self.address = ""

    async def open(self, *, tcp: bool) -> None:
        """Raises: CodefyError naming path and limit, when the path is too long."""
        self._runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=1, handle_signals=False)
        await self._runner.setup()
        try:
            self.address = await (self._open_tcp if tcp else self._open_socket)(self._runner)
        except BaseException:
            await self.aclose()
            raise

    async def _open_tcp(self, runner: web.AppRunner) -> str:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"127.0.0.1:{runner.addresses[0][1]}"

    async def _open_socket(self, runner: web.AppRunner) -> str:
        self._folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="cdui-link-"))
        path = self._folder / secrets.token_hex(2)
        if len(str(path).encode()) > SOCKET_PATH_LIMIT:
            raise CodefyError(
                f"The socket path {path} is longer than {SOCKET_PATH_LIMIT} bytes; set TMPDIR to a shorter folder.",
                code="start",
            )
        await web.UnixSite(runner, str(path)).start()
        return str(path)

    async def aclose(self) -> None:
        """Also closes what is connected through it."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        folder, self._folder = self._folder, None
        if folder is not None:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _app(self) -> web.Application:
        plane = self._plane
        app = web.Application(
            middlewares=[
                errors_middleware(plane.log.getChild("link"), debug=plane.settings.debug),
                self._mark(),
            ],
            client_max_size=plane.settings.max_run_body_bytes,
        )
        app.on_response_prepare.append(name_answer)
        gate = Gate(token=lambda: plane.token, workers=PlaneCallers(plane))
        mount(app, self._routes, gate, plane.settings.max_run_body_bytes, plane.clock)
        app.router.add_get("/ws/worker", self._socket)
        return app

    def _mark(self) -> Any:
        @web.middleware
        async def mark(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            request[LINK] = self._link
            if isinstance(request.match_info.http_exception, web.HTTPMethodNotAllowed):
                raise web.HTTPNotFound  # nothing but its own routes is told of
            return await handler(request)

        return mark

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        return await self._plane.workers.handle(request, link_id=self._link)
