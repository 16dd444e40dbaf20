"""Workers and how they come in: list, tokens, enrollment, drain, removal. Their socket is at ``/ws/worker``."""

from typing import TYPE_CHECKING, Annotated

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from codefyui_core.plugin.http import Auth, Caller, Route

from .answers import json_response
from .bodies import body_of, query_of
from .models import Invitation, NewToken, Tokens, Workers

if TYPE_CHECKING:
    from codefyui_core.control.plane import ControlPlane


class TokenBody(BaseModel):
    """What an enrollment token may do."""

    model_config = ConfigDict(extra="forbid")

    valid_s: Annotated[float, Field(ge=1, le=366 * 86400)] = 86400
    uses: Annotated[int, Field(ge=1, le=10000)] = 1
    worker: str | None = Field(None, max_length=63)
    """An enrolled worker's name: the token re-keys it and enrolls no other."""
    address: str | None = Field(None, max_length=512)
    """What the agent is to dial, for the command."""


class InvitationQuery(BaseModel):
    """Where the agent is to dial."""

    model_config = ConfigDict(extra="forbid")

    address: str | None = Field(None, max_length=512)
    """As the caller reached the server, otherwise."""


class EnrollBody(BaseModel):
    """An agent trades its token for a credential."""

    token: str = Field(max_length=256)
    name: str | None = Field(None, max_length=128)
    nonce: str = Field(min_length=8, max_length=64)
    machine_id: str = Field("", max_length=128)
    platform: str = Field("", max_length=128)


class Enrolled(BaseModel):
    """The worker's own credential."""

    credential: str
    worker_id: str
    name: str
    db_id: str


class RemovedWorker(BaseModel):
    """The worker is gone from the list."""

    name: str
    removed: bool


class DrainedWorker(BaseModel):
    """A worker that is drained gets no new runs."""

    name: str
    drained: bool


class TokenState(BaseModel):
    """A token after a change."""

    id: str
    revoked: bool


def routes(plane: "ControlPlane") -> list[Route]:
    workers = plane.workers

    async def listing(request: web.Request, caller: Caller) -> web.StreamResponse:
        return json_response(await workers.list())

    async def make(request: web.Request, caller: Caller) -> web.StreamResponse:
        body = await body_of(request, TokenBody)
        made = await workers.make_token(
            body.valid_s, body.uses, body.worker, body.address, f"{request.scheme}://{request.host}"
        )
        return json_response(made, status=201)

    async def invitation(request: web.Request, caller: Caller) -> web.StreamResponse:
        address = query_of(request, InvitationQuery).address or f"{request.scheme}://{request.host}"
        return json_response(await workers.invitation(address))

    async def tokens(request: web.Request, caller: Caller) -> web.StreamResponse:
        return json_response(await workers.tokens())

    async def revoke(request: web.Request, caller: Caller) -> web.StreamResponse:
        token_id = request.match_info["token_id"]
        await workers.revoke_token(token_id)
        return json_response({"id": token_id, "revoked": True})

    async def hide(request: web.Request, caller: Caller) -> web.StreamResponse:
        token_id = request.match_info["token_id"]
        await workers.hide_token(token_id)
        return json_response({"id": token_id, "revoked": True})

    async def enroll(request: web.Request, caller: Caller) -> web.StreamResponse:
        body = await body_of(request, EnrollBody)
        peer = request.remote or ""
        return json_response(
            await workers.enroll(
                body.token, body.name, body.nonce, body.machine_id, body.platform, peer, caller.link_id
            )
        )

    async def remove(request: web.Request, caller: Caller) -> web.StreamResponse:
        name = request.match_info["name"]
        await workers.remove(name)
        return json_response({"name": name, "removed": True})

    async def drain(request: web.Request, caller: Caller) -> web.StreamResponse:
        return json_response(await workers.drain(request.match_info["name"], drained=True))

    async def undrain(request: web.Request, caller: Caller) -> web.StreamResponse:
        return json_response(await workers.drain(request.match_info["name"], drained=False))

    return [
        Route(
            method="GET",
            path="/api/workers",
            handler=listing,
            auth=Auth.OPEN,
            response=Workers,
            summary="Workers and refused connections",
        ),
        Route(
            method="POST",
            path="/api/workers/tokens",
            handler=make,
            auth=Auth.SESSION,
            request=TokenBody,
            response=NewToken,
            status=201,
            errors=("worker.not_found", "server.stopping"),
            summary="Make an enrollment token",
        ),
        Route(
            method="GET",
            path="/api/workers/invitation",
            handler=invitation,
            auth=Auth.OPEN,
            query=InvitationQuery,
            response=Invitation,
            errors=("request.invalid",),
            summary="What the command for an agent gets at an address, before a token is made",
        ),
        Route(
            method="GET",
            path="/api/workers/tokens",
            handler=tokens,
            auth=Auth.SESSION,
            response=Tokens,
            summary="Enrollment tokens, without their secrets",
        ),
        Route(
            method="POST",
            path="/api/workers/tokens/{token_id}/revoke",
            handler=revoke,
            auth=Auth.SESSION,
            response=TokenState,
            errors=("enrollment.not_found",),
            summary="Refuse a token from now on; it stays listed",
        ),
        Route(
            method="DELETE",
            path="/api/workers/tokens/{token_id}",
            handler=hide,
            auth=Auth.SESSION,
            response=TokenState,
            errors=("enrollment.not_found",),
            summary="Take a token off the list; it is refused from now on",
        ),
        Route(
            method="POST",
            path="/api/workers/enroll",
            handler=enroll,
            auth=Auth.ENROLLMENT,
            request=EnrollBody,
            response=Enrolled,
            errors=(
                "enrollment.unknown",
                "enrollment.expired",
                "enrollment.used_up",
                "enrollment.revoked",
                "enrollment.bound",
                "enrollment.name_taken",
                "rate.limited",
                "request.invalid",
                "server.stopping",
            ),
            summary="Trade an enrollment token for a worker's credential",
        ),
        Route(
            method="POST",
            path="/api/workers/{name}/drain",
            handler=drain,
            auth=Auth.SESSION,
            response=DrainedWorker,
            errors=("worker.not_found",),
            summary="Give a worker no new runs",
        ),
        Route(
            method="POST",
            path="/api/workers/{name}/undrain",
            handler=undrain,
            auth=Auth.SESSION,
            response=DrainedWorker,
            errors=("worker.not_found",),
            summary="Give a drained worker runs again",
        ),
        Route(
            method="DELETE",
            path="/api/workers/{name}",
            handler=remove,
            auth=Auth.SESSION,
            response=RemovedWorker,
            errors=("worker.not_found",),
            summary="Remove a worker: revoke its credential, end its runs",
        ),
    ]
