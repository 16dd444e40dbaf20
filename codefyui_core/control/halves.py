"""The control halves of plugins: made at start, started beside the server, closed before it ends."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from codefyui_core.control.hosts import LinkHost, StoreHost
from codefyui_core.errors import CodefyError
from codefyui_core.plugin.connector import ConnectorControl
from codefyui_core.plugin.halves import ControlHalf
from codefyui_core.plugin.http import Caller, Handler, Route
from codefyui_core.plugin.storage import StorageControl
from codefyui_core.plugin.views import PluginState

from .api.routing import OwnedRoute

if TYPE_CHECKING:
    from codefyui_core.control.plane import ControlPlane

CLOSE_WITHIN_S = 5.0


class ControlHalves:
    """All of them. One that fails is listed and costs itself alone."""

    def __init__(self, *, plane: "ControlPlane") -> None:
        self._plane = plane
        self.stores: dict[str, StorageControl[Any, Any, Any, Any]] = {}
        """Backends that have started; others count as off."""
        self.connectors: dict[str, ConnectorControl] = {}
        self._made: dict[str, ControlHalf] = {}
        self._starting: set[str] = set()

    def make(self) -> None:
        """Ask every descriptor for its control half."""
        registry = self._plane.registry
        for name, connector in registry.connectors.items():
            self._make(f"connector {name}", lambda c=connector, n=name: c.control(LinkHost(self._plane, n)))
        for name, backend in registry.backends.items():
            self._make(f"storage {name}", lambda b=backend, n=name: b.control(StoreHost(self._plane, n)))
        self._starting = set(self._made)

    def _make(self, what: str, make: Callable[[], ControlHalf]) -> None:
        try:
            self._made[what] = make()
        except Exception as error:
            self._failed(what, error)

    def routes(self) -> list[OwnedRoute]:
        """Of all halves, each answering 503 until its half has started."""
        found = []
        for what, half in self._made.items():
            try:
                own = list(half.routes())
            except Exception as error:
                self._failed(what, error)
                continue
            owner = self._owner(what)
            found += [OwnedRoute(route=self._held(route, what), owner=owner) for route in own]
        return found

    def _held(self, route: Route, what: str) -> Route:
        from dataclasses import replace

        handler: Handler = route.handler

        async def held(request: web.Request, caller: Caller) -> web.StreamResponse:
            if what in self._starting:
                raise CodefyError(f"The {what} is still starting; try again in a moment.", code="server.busy")
            return await handler(request, caller)

        return replace(route, handler=held)

    async def start(self) -> None:
        """All at once; the server doesn't wait for it."""
        await asyncio.gather(*(self._start(what, half) for what, half in list(self._made.items())))

    async def _start(self, what: str, half: ControlHalf) -> None:
        try:
            await half.start()
        except Exception as error:
            self._made.pop(what, None)
            self._failed(what, error)
            return
        finally:
            self._starting.discard(what)
        kind, _, name = what.partition(" ")
        if kind == "storage" and isinstance(half, StorageControl):
            self.stores[name] = half
        if isinstance(half, ConnectorControl):
            self.connectors[name] = half

    def starting(self) -> list[str]:
        """Halves whose ``start`` hasn't returned."""
        return sorted(self._starting)

    async def aclose(self) -> None:
        """Each has 5 s; what doesn't end by then is left behind and named in the log."""
        await asyncio.gather(*(self._close(what, half.aclose) for what, half in self._made.items()))

    async def _close(self, what: str, aclose: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await aclose()
        except Exception as error:
            self._plane.log.warning("%s didn't close: %s", what, error or type(error).__name__)

    def _failed(self, what: str, error: Exception) -> None:
        self._starting.discard(what)
        self._plane.log.error("%s failed: %s", what, error, exc_info=error)
        registry = self._plane.registry
        entry = registry.entry_point_of(what)
        if entry is not None:
            registry.mark(entry, PluginState.FAILED, f"{what}: {error or type(error).__name__}")

    def _owner(self, what: str) -> str:
        return self._plane.registry.owner_of(what)
