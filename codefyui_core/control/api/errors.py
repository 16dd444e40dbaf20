"""Every error as one shape: ``{detail, code, hint?, issues?, problems?, request_id}``. Clients go by the code."""

import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web

from codefyui_core.errors import CodefyError, FormProblem, status_of
from codefyui_core.graph import GraphInvalid
from codefyui_core.plugin.values import JsonObject

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
REQUEST_ID = web.RequestKey("request_id", str)
_ID = re.compile(r"^[A-Za-z0-9._-]{1,64}$")

BY_STATUS = {404: "not_found", 405: "method_not_allowed", 413: "request.too_large", 400: "request.invalid"}


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
    if error.code in {"catalog.loading", "server.busy", "rate.limited"}:
        extra.setdefault("Retry-After", "1")
    return json_response(error_body(error, request_id), status=status, headers=extra)


def json_response(body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """JSON without NaN: orjson writes null for one, and rows never hold one."""
    return web.Response(
        body=orjson.dumps(body), status=status, headers=headers, content_type="application/json"
    )


def errors_middleware(log: logging.Logger, *, debug: bool) -> Any:
    """Outermost: names the request, and turns whatever is raised inside into the one shape."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("X-Request-Id", "")
        request_id = given if _ID.match(given) else secrets.token_hex(8)
        request[REQUEST_ID] = request_id
        response = await _answer(request, handler, request_id)
        if not response.prepared:
            response.headers.setdefault("X-Request-Id", request_id)
        return response

    async def _answer(request: web.Request, handler: Handler, request_id: str) -> web.StreamResponse:
        try:
            return await handler(request)
        except CodefyError as error:
            if status_of(error.code) >= 500 and error.code == "internal":
                log.exception("request %s: %s", request_id, error)
            return error_response(error, request_id)
        except web.HTTPException as answer:
            return _from_http(answer, request, request_id)
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:
            log.exception("request %s: %s %s", request_id, request.method, request.path)
            detail = f"{type(error).__name__}: {error}" if debug else "Something went wrong in the server."
            message = f"{detail} The server's log has the details under request {request_id}."
            return error_response(CodefyError(message, code="internal"), request_id)

    return middleware


def _from_http(answer: web.HTTPException, request: web.Request, request_id: str) -> web.StreamResponse:
    if answer.status < 400:
        return answer
    code = BY_STATUS.get(answer.status, "request.invalid" if answer.status < 500 else "internal")
    texts = {
        404: f"There is nothing at {request.path}.",
        405: f"{request.method} isn't possible at {request.path}.",
        413: "The body is larger than the server takes.",
    }
    error = CodefyError(texts.get(answer.status, answer.reason), code=code)
    allow = answer.headers.get("Allow")
    return error_response(error, request_id, {"Allow": allow} if allow else None)
