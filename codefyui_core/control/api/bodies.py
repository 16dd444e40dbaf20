"""Bytes and queries into models, once, at the edge."""

from typing import Any, TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from codefyui_core.errors import CodefyError, FormProblem, Problem
from codefyui_core.graph import json_text

M = TypeVar("M", bound=BaseModel)


class SchemaProblem(FormProblem):
    """A body that isn't of the route's shape."""

    default_code = "request.schema"


class QueryProblem(FormProblem):
    """A query that isn't of the route's shape."""

    default_code = "request.invalid"


async def json_of(request: web.Request) -> Any:
    """The body as JSON.

    Raises: CodefyError ``request.not_json``; HTTPRequestEntityTooLarge while reading.
    """
    raw = await request.read()
    try:
        return json_text.loads(raw)
    except (ValueError, RecursionError, CodefyError) as error:
        raise CodefyError(f"The body isn't JSON: {error}", code="request.not_json") from None


async def body_of(request: web.Request, model: type[M]) -> M:
    """The body as ``model``.

    Raises: SchemaProblem with a problem for each field.
    """
    value = await json_of(request)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise SchemaProblem(problems_of(error)) from None


def query_of(request: web.Request, model: type[M]) -> M:
    """The query as ``model``; of a name given twice the last counts, unless it is a list.

    Raises: QueryProblem with a problem for each parameter.
    """
    values: dict[str, Any] = {}
    for name in request.query:
        found = request.query.getall(name)
        field = model.model_fields.get(name)
        several = field is not None and "list" in str(field.annotation)
        values[name] = found if several else found[-1]
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise QueryProblem(problems_of(error)) from None


def problems_of(error: ValidationError) -> list[Problem]:
    """Pydantic's errors by field."""
    return [
        Problem(
            message=_named(".".join(str(part) for part in item["loc"]), item["msg"]),
            field=".".join(str(part) for part in item["loc"]) or None,
            code=item["type"],
        )
        for item in error.errors(include_url=False, include_context=False, include_input=False)
    ]


def _named(field: str, message: str) -> str:
    return f"{field}: {message}" if field else message
