"""OpenAPI 3.1 out of the route table: one operation a route, every error code under its status."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from codefyui_core.errors import status_of
from codefyui_core.plugin.http import Auth, Route

from .routing import TOKEN_HEADER, OwnedRoute

REF = "#/components/schemas/{model}"
EVENTS = "text/event-stream"
BYTES = "application/octet-stream"
_PARAMETER = re.compile(r"\{(\w+)(?::[^{}]*(?:\{[^{}]*\}[^{}]*)*)?\}")

Refs = Mapping[Any, dict[str, Any]]
"""Where each model's schema is; two of one name keep apart."""

ALWAYS = ("request.invalid", "host.not_allowed", "internal", "not_found", "server.busy")
"""What any route may answer."""
UNREADABLE = 400
"""Also the status, in plain text, of what isn't HTTP or has a line over 8 KiB: no route gets to see that."""
BY_AUTH = {
    Auth.SESSION: ("auth.token",),
    Auth.KEY: ("auth.token",),
    Auth.KEY_OR_SESSION: ("auth.token",),
    Auth.WORKER: ("auth.worker_unknown", "auth.worker_revoked"),
    Auth.RUN_WORKER: ("auth.worker_unknown", "auth.worker_revoked", "run.not_yours", "run.attempt_over"),
    Auth.ENROLLMENT: (),
    Auth.OPEN: (),
}
SECURITY: dict[Auth, list[dict[str, list[str]]]] = {
    Auth.SESSION: [{"session": []}],
    Auth.KEY: [{"key": []}],
    Auth.KEY_OR_SESSION: [{"key": []}, {"session": []}],
    Auth.WORKER: [{"worker": []}],
    Auth.RUN_WORKER: [{"worker": []}],
}


def describe(routes: Sequence[OwnedRoute], *, version: str) -> dict[str, Any]:
    """The whole document."""
    models = {model for owned in routes for model in _models(owned.route)}
    inputs = [(model, "validation") for model in sorted(models, key=lambda model: model.__name__)]
    found, definitions = models_json_schema(inputs, ref_template=REF)  # type: ignore[arg-type]
    refs: Refs = {model: schema for (model, _), schema in found.items()}
    schemas: dict[str, Any] = {**definitions.get("$defs", {}), "Error": ERROR_SCHEMA}
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for owned in routes:
        paths[_path(owned.route.path)][owned.route.method.lower()] = _operation(owned, refs, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "CodefyUI",
            "version": version,
            "description": "Graphs, runs, workers and files of one control plane.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": dict(paths),
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "session": {"type": "apiKey", "in": "header", "name": TOKEN_HEADER},
                "worker": {"type": "http", "scheme": "bearer"},
                "key": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _models(route: Route) -> Iterable[type[BaseModel]]:
    return (model for model in (route.request, route.response, route.query) if model is not None)


def _path(path: str) -> str:
    return _PARAMETER.sub(lambda match: "{" + match[1] + "}", path)


def _operation(owned: OwnedRoute, refs: Refs, schemas: Mapping[str, Any]) -> dict[str, Any]:
    route = owned.route
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}{re.sub(r'[^a-z0-9]+', '_', _path(route.path).lower())}",
        "tags": [route.path.split("/")[2] if route.path.startswith("/api/") else "page"],
        "parameters": [*_path_parameters(route), *_query_parameters(route, refs, schemas)],
        "responses": {**_failures(route), **_successes(route, refs)},
        "x-owner": owned.owner,
    }
    if route.auth in SECURITY:
        operation["security"] = SECURITY[route.auth]
    if route.request is not None or route.accepts != "application/json":
        operation["requestBody"] = {
            "required": True,
            "content": {route.accepts: {"schema": _request(route, refs)}},
        }
    return operation


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": match[1], "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for match in _PARAMETER.finditer(route.path)
    ]


def _query_parameters(route: Route, refs: Refs, schemas: Mapping[str, Any]) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    schema = schemas[refs[route.query]["$ref"].rpartition("/")[2]]
    return [
        {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": field}
        for name, field in schema.get("properties", {}).items()
    ]


def _request(route: Route, refs: Refs) -> dict[str, Any]:
    if route.request is not None:
        return refs[route.request]
    return {
        "type": "object",
        "required": ["file"],
        "properties": {"file": {"type": "string", "format": "binary"}},
    }


def _successes(route: Route, refs: Refs) -> dict[str, Any]:
    found = {str(route.status): {"description": "Done.", "content": _contents(route, refs)}}
    if EVENTS in route.also_answers:
        found["204"] = {"description": "Nothing more will come."}
    if route.may_be_empty:
        found["204"] = {"description": "There is nothing."}
    if route.answers == BYTES:
        found["206"] = {"description": "The range that was asked for.", "content": _contents(route, refs)}
        found["302"] = {"description": "The bytes are elsewhere."}
        found["304"] = {"description": "It hasn't changed."}
        found["412"] = {"description": "It has changed."}
        found["416"] = {"description": "There is no such range."}
    return found


def _contents(route: Route, refs: Refs) -> dict[str, Any]:
    if route.response is not None:
        schema = refs[route.response]
    else:
        schema = {} if route.answers in {"application/json", BYTES} else {"type": "string"}
    # a download has the type of its file
    first = "*/*" if route.answers == BYTES else route.answers
    others = {answers: {"schema": {"type": "string"}} for answers in route.also_answers}
    return {first: {"schema": schema}, **others}


def _failures(route: Route) -> dict[str, Any]:
    codes = [*ALWAYS, *BY_AUTH[route.auth], *route.errors]
    if route.request is not None:
        codes += ["request.not_json", "request.schema", "request.too_large", "request.too_slow"]
    if route.query is not None:
        codes.append("request.invalid")
    by_status: dict[int, list[str]] = defaultdict(list)
    for code in dict.fromkeys(codes):
        by_status[status_of(code)].append(code)
    return {
        str(status): {"description": ", ".join(found), "content": _error_contents(status)}
        for status, found in sorted(by_status.items())
    }


def _error_contents(status: int) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": {"$ref": REF.format(model="Error")}}}
    return {**content, "text/plain": {"schema": {"type": "string"}}} if status == UNREADABLE else content


ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["detail", "code", "request_id"],
    "properties": {
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "hint": {"type": "string"},
        "request_id": {"type": "string"},
        "issues": {"type": "array", "items": {"type": "object"}},
        "problems": {"type": "array", "items": {"type": "object"}},
    },
}
