"""Recorded outputs of runs: what there is, values by slices, statistics, steps."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from aiohttp import web
from pydantic import BaseModel, Field

from codefyui_core.outputs import Question, What
from codefyui_core.outputs.reading import MAX_ELEMENTS
from codefyui_core.plugin.http import Auth, Caller, Route

from .answers import json_response
from .bodies import query_of
from .models import Row

if TYPE_CHECKING:
    from codefyui_core.control.plane import ControlPlane

T = TypeVar("T")
LOOK_S = 0.5
"""Between two looks at whether the client is still there."""


class ValueQuery(BaseModel):
    """Which part of a value, and how much of it at most."""

    slice: str | None = Field(None, max_length=256)
    """An index or start:stop:step for each axis, separated by commas."""
    max_elements: int = Field(4096, ge=1, le=MAX_ELEMENTS)


class OutputPort(Row):
    """What a node gave at one port."""

    port: str
    kind: str
    dtype: str | None
    shape: list[int] | None
    length: int | None
    bytes: int
    elided: str | None
    """Why nothing of it was kept."""


class OutputNode(Row):
    """A node that ran."""

    node_id: str
    type: str
    container: str | None
    ports: list[OutputPort]
    steps: int


class Outputs(Row):
    """What a run recorded."""

    run_id: str
    recorded_at_ms: int
    bytes: int
    nodes: list[OutputNode]


class OutputValue(Row):
    """A value or a part of it. Tensors have ``dtype``, ``shape``, ``selected`` and ``values``, others ``value``."""

    run_id: str
    node_id: str
    port: str
    kind: str


class OutputStats(Row):
    """How numbers are spread."""

    run_id: str
    node_id: str
    port: str
    dtype: str | None
    stats: dict[str, Any]


class OutputSteps(Row):
    """What a node showed of its work; each tensor by the port to read it from."""

    run_id: str
    node_id: str
    steps: list[dict[str, Any]]


class Removed(BaseModel):
    """The outputs are gone; the run stays."""

    run_id: str
    removed: bool


def routes(plane: "ControlPlane") -> list[Route]:
    outputs = plane.runs.outputs

    async def asked(request: web.Request, what: What, **question: Any) -> web.StreamResponse:
        found = await while_there(
            request, outputs.read(request.match_info["run_id"], Question(what=what, **question))
        )
        if found is None:
            return web.Response(status=204)
        return web.Response(body=found, content_type="application/json")

    async def listing(request: web.Request, caller: Caller) -> web.StreamResponse:
        return await asked(request, What.LIST)

    async def remove(request: web.Request, caller: Caller) -> web.StreamResponse:
        run_id = request.match_info["run_id"]
        removed = await while_there(request, outputs.remove(run_id))
        return json_response(Removed(run_id=run_id, removed=removed).model_dump())

    async def steps(request: web.Request, caller: Caller) -> web.StreamResponse:
        return await asked(request, What.STEPS, node=request.match_info["node_id"])

    async def value(request: web.Request, caller: Caller) -> web.StreamResponse:
        query = query_of(request, ValueQuery)
        return await asked(
            request, What.VALUE, **_port(request), slice=query.slice, max_elements=query.max_elements
        )

    async def stats(request: web.Request, caller: Caller) -> web.StreamResponse:
        return await asked(request, What.STATS, **_port(request))

    def route(
        method: str, path: str, handler: Any, response: type[BaseModel], summary: str, **more: Any
    ) -> Route:
        return Route(
            method=method,
            path=f"/api/execution/outputs/{{run_id}}{path}",
            handler=handler,
            response=response,
            summary=summary,
            errors=(*ERRORS, *more.pop("errors", ())),
            auth=more.pop("auth", Auth.OPEN),
            **more,
        )

    read = {"query": ValueQuery, "errors": ("outputs.too_large",), "may_be_empty": True}
    return [
        route("GET", "", listing, Outputs, "What a run recorded, without the values"),
        route("DELETE", "", remove, Removed, "Remove what a run recorded", auth=Auth.SESSION),
        route("GET", "/{node_id}/__steps_index", steps, OutputSteps, "The steps that a node showed"),
        route("GET", "/{node_id}/{port}", value, OutputValue, "A recorded value, or a slice of it", **read),
        route(
            "GET",
            "/{node_id}/{port}/stats",
            stats,
            OutputStats,
            "Statistics of recorded numbers",
            may_be_empty=True,
        ),
    ]


ERRORS = (
    "run.not_found",
    "run.active",
    "outputs.not_found",
    "outputs.away",
    "outputs.timeout",
    "storage.corrupt",
)


def _port(request: web.Request) -> dict[str, str]:
    return {"node": request.match_info["node_id"], "port": request.match_info["port"]}


async def while_there(request: web.Request, work: Coroutine[Any, Any, T]) -> T:
    """The result, unless the client leaves before: then the work is cancelled.

    Raises: ConnectionResetError when it left.
    """
    task = asyncio.create_task(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=LOOK_S)
            if not task.done() and (request.transport is None or request.transport.is_closing()):
                raise ConnectionResetError("the client left")
        return task.result()
    finally:
        task.cancel()
