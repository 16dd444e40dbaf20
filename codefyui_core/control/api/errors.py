"""Every error as one shape: ``{detail, code, hint?, issues?, problems?, request_id}``. Clients go by the code."""

import errno
import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from sqlalchemy.exc import SQLAlchemyError

from codefyui_core.control.db.outages import is_outage
from codefyui_core.errors import CodefyError, FormProblem, status_of
from codefyui_core.graph import GraphInvalid
from codefyui_core.plugin.values import JsonObject

from .answers import json_response

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
REQUEST_ID = web.RequestKey("request_id", str)
_ID = re.compile(r"^[A-Za-z0-9._-]{1,64}$")

BY_STATUS = {404: "not_found", 405: "method_not_allowed", 413: "request.too_large", 400: "request.invalid"}
OUTAGES = frozenset({"server.busy", "storage.full"})
"""Where in the server it was found out says nothing."""
TRY_AGAIN = frozenset({"catalog.loading", "server.busy", "rate.limited"})


def error_body(error: CodefyError, request_id: str) -> JsonObject:
    """What a person and a client get of an error."""
    body: JsonObject = {"detail": error.message, "code": error.code, "request_id": request_id}
    if isinstance(error, GraphInvalid):
        body["issues"] = [issue.to_json() for issue in error.issues]
    if isinstance(error, FormProblem):
        body["problems"] = [
            {"field": problem.field, "message": problem.message, "code": problem.code}
            for problem in error.problems
        ]
    return body


def error_response(
    error: CodefyError, request_id: str, headers: dict[str, str] | None = None
) -> web.Response:
    """The answer to an error, with the status of its code."""
    status = status_of(error.code)
    extra = dict(headers or {})
    if error.code in TRY_AGAIN:
        extra.setdefault("Retry-After", "1")
    if status == 401:
        extra.setdefault("WWW-Authenticate", "Bearer")
    return json_response(error_body(error, request_id), status=status, headers=extra)


async def name_answer(request: web.Request, response: web.StreamResponse) -> None:
    """Signal ``on_response_prepare``: every answer says by which name the log knows its request."""
    response.headers.setdefault("X-Request-Id", request.get(REQUEST_ID, ""))


def errors_middleware(log: logging.Logger, *, debug: bool) -> Any:
    """Names the request, and turns whatever is raised inside into the one shape."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("X-Request-Id", "")
        request_id = given if _ID.match(given) else secrets.token_hex(8)
        request[REQUEST_ID] = request_id
        try:
            return await handler(request)
        except web.HTTPException as answer:
            if answer.status < 400:
                raise
            return _from_http(answer, request, request_id)
        except Exception as error:
            if _is_gone(request):
                return web.Response()  # to nobody
            known = _explained(error, debug=debug, request_id=request_id)
            if known.code in OUTAGES and not isinstance(error, CodefyError):
                log.warning("request %s: %s %s: %s", request_id, request.method, request.path, error)
            elif known.code in {"internal", "error"} or not isinstance(error, CodefyError):
                log.error("request %s: %s %s", request_id, request.method, request.path, exc_info=error)
            return _refuse(request, known, request_id)

    return middleware


def _is_gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def _refuse(request: web.Request, error: CodefyError, request_id: str) -> web.Response:
    """Once an answer has begun another one can't follow: a line that is cut says that it isn't whole."""
    if request.writer.output_size and request.transport is not None:
        request.transport.abort()
    return error_response(error, request_id)


def _explained(error: Exception, *, debug: bool, request_id: str) -> CodefyError:
    if isinstance(error, CodefyError):
        return error
    where = f"The server's log has the details under request {request_id}."
    if (isinstance(error, OSError) and error.errno == errno.ENOSPC) or "disk is full" in str(error):
        return CodefyError(
            f"The server's disk is full. Free some space and try again. {where}", code="storage.full"
        )
    if isinstance(error, SQLAlchemyError) and is_outage(error):
        return CodefyError(
            f"The database can't be used right now; try again in a moment. {where}", code="server.busy"
        )
    detail = f"{type(error).__name__}: {error}" if debug else "Something went wrong in the server."
    return CodefyError(f"{detail} {where}", code="internal")


def _from_http(answer: web.HTTPException, request: web.Request, request_id: str) -> web.Response:
    code = BY_STATUS.get(answer.status, "request.invalid" if answer.status < 500 else "internal")
    texts = {
        404: f"There is nothing at {request.path}. /docs lists what there is.",
        405: f"{request.method} isn't possible at {request.path}. /docs lists what is.",
        413: "The body is larger than the server takes.",
        416: "The file has no such range.",
    }
    error = CodefyError(texts.get(answer.status, answer.reason), code=code)
    kept = {name: answer.headers[name] for name in ("Allow", "Content-Range") if name in answer.headers}
    response = error_response(error, request_id, kept)
    response.set_status(answer.status)
    return response
