"""Mounts ``Route`` tables: who may call, how large a body may be, then the handler."""

import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from aiohttp import HttpVersion11, web

from codefyui_core.clocks import AttentiveClock
from codefyui_core.errors import CodefyError
from codefyui_core.plugin.http import Auth, Caller, Route
from codefyui_core.plugin.views import AttemptView, WorkerView

from .pace import at_a_pace

TOKEN_HEADER = "X-CodefyUI-Token"  # noqa: S105  the name of a header
LINK = web.RequestKey("link", str)
"""Set by a link's private listener on each request that comes in by it."""


class WorkerAuth(Protocol):
    """What the gate asks of the workers."""

    async def authenticate_view(self, credential: str) -> WorkerView:
        """Raises: CodefyError ``auth.worker_unknown`` or ``auth.worker_revoked``."""
        ...

    async def attempt_for(self, worker: WorkerView, run_id: str, fence: str | None) -> AttemptView:
        """Raises: CodefyError ``run.not_yours`` or ``run.attempt_over``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedRoute:
    """A route and the distribution that brought it."""

    route: Route
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Checks who calls before a handler sees the request or its body."""

    token: Callable[[], str]
    workers: WorkerAuth

    async def caller(self, request: web.Request, route: Route) -> Caller:
        """Who is calling.

        Raises: CodefyError with the code of the refusal.
        """
        link = request.get(LINK)
        if link is not None and route.auth is Auth.OPEN:
            return Caller(worker=await self._worker(request), link_id=link)
        match route.auth:
            case Auth.OPEN | Auth.ENROLLMENT:
                return Caller(link_id=link)
            case Auth.SESSION | Auth.KEY | Auth.KEY_OR_SESSION:
                self._session(request)
                return Caller(link_id=link)
            case Auth.WORKER:
                return Caller(worker=await self._worker(request), link_id=link)
            case Auth.RUN_WORKER:
                worker = await self._worker(request)
                fence = request.headers.get("X-CodefyUI-Attempt")
                attempt = await self.workers.attempt_for(worker, request.match_info["run_id"], fence)
                return Caller(worker=worker, attempt=attempt, link_id=link)

    def _session(self, request: web.Request) -> None:
        given = request.headers.get(TOKEN_HEADER, "")
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self.token().encode()):
            said = "is wrong or from before the server's last start" if given else "is missing"
            raise CodefyError(
                f"The session token (header {TOKEN_HEADER}) {said}. Reload the page, or read it from session.token "
                "in the server's user data.",
                code="auth.token",
            )

    async def _worker(self, request: web.Request) -> WorkerView:
        scheme, _, credential = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not credential:
            if request.get(LINK) is not None:
                raise CodefyError("Through a tunnel this needs a worker's credential.", code="auth.token")
            raise CodefyError(
                "This needs a worker's credential (Authorization: Bearer cdw_...).",
                code="auth.worker_unknown",
            )
        return await self.workers.authenticate_view(credential)


def mount(
    app: web.Application,
    routes: Sequence[OwnedRoute],
    gate: Gate,
    default_limit: int,
    clock: AttentiveClock,
) -> None:
    """Add every route to the application."""
    for owned in routes:
        route = owned.route
        limit = default_limit if route.body_limit_bytes is None else route.body_limit_bytes
        handler = _guarded(route, gate, limit, clock)
        app.router.add_route(route.method, route.path, handler, expect_handler=_not_yet)


def _guarded(
    route: Route, gate: Gate, limit: int, clock: AttentiveClock
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        caller = await gate.caller(request, route)
        length = request.content_length
        if length is not None and length > limit:
            raise CodefyError(
                f"The body has {length} bytes; this route takes {limit}.", code="request.too_large"
            )
        await _ask_for_body(request)
        async with at_a_pace(request.content, clock):
            return await route.handler(request.clone(client_max_size=limit), caller)

    return handle


async def _not_yet(request: web.Request) -> None:
    """Nobody is told to send a body before it is known whether it is wanted (RFC 9110, section 10.1.1)."""


async def _ask_for_body(request: web.Request) -> None:
    if request.version >= HttpVersion11 and request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the answer itself hasn't begun
