"""The control halves of plugins: made at start, started beside the server, closed before it ends."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import web

from codefyui_core.control.hosts import LinkHost, PlaneHost, StoreHost
from codefyui_core.errors import CodefyError
from codefyui_core.loading import NameKind, check_routes
from codefyui_core.loading.explain import explain
from codefyui_core.plugin.connector import Claim, ConnectorControl, Invitation
from codefyui_core.plugin.halves import ControlHalf
from codefyui_core.plugin.http import Caller, Handler, Route
from codefyui_core.plugin.storage import StorageControl
from codefyui_core.plugin.views import WorkerEvent

from .api.routing import OwnedRoute

if TYPE_CHECKING:
    from codefyui_core.control.plane import ControlPlane

CLOSE_WITHIN_S = 5.0
INVITE_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Made:
    """Names a half by its descriptor."""

    kind: NameKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}"


class ControlHalves:
    """All of them. One that fails is listed and costs itself alone."""

    def __init__(self, *, plane: "ControlPlane") -> None:
        self._plane = plane
        self.stores: dict[str, StorageControl[Any, Any, Any, Any]] = {}
        """Backends that have started; others count as off."""
        self.connectors: dict[str, ConnectorControl] = {}
        self._made: dict[Made, ControlHalf] = {}
        self._starting: set[Made] = set()
        self._hosts: dict[Made, PlaneHost] = {}
        self._telling: dict[Made, asyncio.Lock] = {}

    def make(self) -> None:
        """Ask every descriptor for its control half."""
        plane = self._plane
        for name, connector in plane.registry.connectors.items():
            link_host = LinkHost(plane, name)
            self._make(Made(NameKind.CONNECTOR, name), link_host, partial(connector.control, link_host))
        for name, backend in plane.registry.backends.items():
            store_host = StoreHost(plane, name)
            self._make(Made(NameKind.BACKEND, name), store_host, partial(backend.control, store_host))
        self._starting = set(self._made)
        plane.workers.listeners.append(self._tell)
        plane.workers.invite = self.invite

    def _make(self, what: Made, host: PlaneHost, make: Callable[[], ControlHalf]) -> None:
        self._hosts[what] = host
        try:
            self._made[what] = make()
        except Exception as error:
            self._failed(what, error)

    def routes(self) -> list[OwnedRoute]:
        """Of all halves, each answering 503 until its half has started."""
        found: list[OwnedRoute] = []
        for what, half in list(self._made.items()):
            owner = self._plane.registry.owner(what.kind, what.name).distribution
            try:
                own = list(half.routes())
                for route in own:
                    check_routes([(owner, route)])
                    web.UrlDispatcher().add_resource(route.path)  # raises for a pattern that is none
            except Exception as error:
                self._failed(what, error)
                continue
            found += [OwnedRoute(route=self._held(route, what), owner=owner) for route in own]
        return found

    def _held(self, route: Route, what: Made) -> Route:
        handler: Handler = route.handler

        async def held(request: web.Request, caller: Caller) -> web.StreamResponse:
            if what in self._starting:
                raise CodefyError(f"The {what} is still starting; try again in a moment.", code="server.busy")
            if what not in self._made:
                raise CodefyError(
                    f"The {what} has failed to start. cdui plugin list says why; correct it and restart the server.",
                    code="server.busy",
                )
            return await handler(request, caller)

        return replace(route, handler=held)

    async def start(self) -> None:
        """All at once; the server doesn't wait for it."""
        await asyncio.gather(*(self._start(what, half) for what, half in list(self._made.items())))

    async def _start(self, what: Made, half: ControlHalf) -> None:
        try:
            await half.start()
        except Exception as error:
            self._failed(what, error)
            await self._close(what, half.aclose)
            return
        self._starting.discard(what)
        if isinstance(half, StorageControl):
            self.stores[what.name] = half
            self._plane.runs.stores_changed()
        if isinstance(half, ConnectorControl):
            self.connectors[what.name] = half

    async def invite(self, address: str) -> Invitation:
        """What the connector that serves an address adds to the command; nothing when it fails or is slow."""
        claims = {name: half.serves(address) for name, half in self.connectors.items()}
        for wanted in (Claim.FITS, Claim.FALLBACK):
            for name in sorted(name for name, claim in claims.items() if claim is wanted):
                try:
                    async with asyncio.timeout(INVITE_WITHIN_S):
                        return await self.connectors[name].invite(address)
                except Exception:
                    self._plane.log.exception("connector %s failed to invite to %s", name, address)
                    return Invitation()
        return Invitation()

    def _tell(self, event: WorkerEvent) -> None:
        """Every half that has started, each in the order in which things happened."""
        for what, half in self._made.items():
            if what not in self._starting:
                told = self._told(what, half, event)
                self._hosts[what].tasks.start(told, name=f"tell {what} of {event.worker.name}")

    async def _told(self, what: Made, half: ControlHalf, event: WorkerEvent) -> None:
        async with self._telling.setdefault(what, asyncio.Lock()):  # first come, first served
            await half.worker_changed(event)

    def conditions(self) -> dict[str, str]:
        """What the halves say of themselves, by ``storage s3``; those that have nothing to say are left out."""
        said: dict[str, str] = {}
        for what, half in self._made.items():
            try:
                text = "starting" if what in self._starting else half.condition()
            except Exception:
                self._plane.log.exception("%s failed to say in what condition it is", what)
                text = "it failed to say; see the server's log"
            if text:
                said[str(what)] = text
        return said

    def starting(self) -> list[str]:
        """Halves whose ``start`` hasn't returned."""
        return sorted(map(str, self._starting))

    async def aclose(self) -> None:
        """Each has 5 s; what doesn't end by then is left behind and named in the log."""
        await asyncio.gather(*(self._close(what, half.aclose) for what, half in self._made.items()))
        await asyncio.gather(*(self._close(what, host.aclose) for what, host in self._hosts.items()))

    async def _close(self, what: Made, aclose: Callable[[], Coroutine[Any, Any, None]]) -> None:
        ending = asyncio.create_task(aclose(), name=f"close {what}")
        done, _ = await asyncio.wait({ending}, timeout=CLOSE_WITHIN_S)
        if not done:
            ending.cancel()
            self._plane.log.warning("%s didn't close within %g s; it is left behind", what, CLOSE_WITHIN_S)
        elif not ending.cancelled() and (error := ending.exception()) is not None:
            self._plane.log.warning("%s didn't close: %s", what, explain(error))

    def _failed(self, what: Made, error: Exception) -> None:
        self._starting.discard(what)
        self._made.pop(what, None)
        registry = self._plane.registry
        registry.charge(registry.owner(what.kind, what.name).entry_point, error)
