"""Runs: submit, look, follow, stop, remove."""

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from codefyui_core.errors import CodefyError
from codefyui_core.plugin.http import Auth, Caller, Route
from codefyui_core.plugin.views import RunStatus
from codefyui_core.runs.options import RunOptions

from .answers import json_response
from .bodies import json_of, query_of
from .events import event_stream
from .models import Events, Metrics, Run, Runs
from .sending import disposition

if TYPE_CHECKING:
    from codefyui_core.control.plane import ControlPlane


class SubmitBody(BaseModel):
    """A graph to run."""

    model_config = ConfigDict(extra="forbid")

    graph: dict[str, Any]
    options: RunOptions | None = None
    name: str | None = Field(None, max_length=64)
    submit_id: str | None = Field(None, min_length=1, max_length=64)
    """Made by the client: sending the same one again answers the same run."""


class Submitted(BaseModel):
    """The run that was made, or the one that this submit_id made before."""

    run_id: str
    status: str


class RunsQuery(BaseModel):
    """Which runs."""

    status: list[RunStatus] = []
    limit: int = Field(50, ge=1, le=500)
    offset: int = Field(0, ge=0, le=2**53)
    target: str | None = Field(None, max_length=256)
    worker: str | None = Field(None, max_length=128)
    q: str | None = Field(None, max_length=256)


class EventsQuery(BaseModel):
    """Which events, and how long to wait for the first."""

    cursor: int = Field(0, ge=0, le=2**62)
    wait: float = Field(0, ge=0, le=60)
    limit: int = Field(500, ge=1, le=2000)


class MetricsQuery(BaseModel):
    """Which metric, in which form."""

    name: str | None = Field(None, max_length=256)
    format: Literal["json", "csv"] = "json"


class Cancelled(BaseModel):
    """What became of the wish."""

    run_id: str
    status: str
    cancelled: bool


class Gone(BaseModel):
    """The run is removed."""

    run_id: str
    deleted: bool
    warning: str | None = None


def routes(plane: "ControlPlane") -> list[Route]:
    runs = plane.runs

    async def submit(request: web.Request, caller: Caller) -> web.StreamResponse:
        graph, options, name, submit_id = envelope(await json_of(request))
        return json_response(await runs.submit(graph, options, name, submit_id))

    async def listing(request: web.Request, caller: Caller) -> web.StreamResponse:
        query = query_of(request, RunsQuery)
        return json_response(
            await runs.list(query.status, query.limit, query.offset, query.target, query.worker, query.q)
        )

    async def get(request: web.Request, caller: Caller) -> web.StreamResponse:
        return json_response(await runs.get(request.match_info["run_id"]))

    async def cancel(request: web.Request, caller: Caller) -> web.StreamResponse:
        return json_response(await runs.cancel(request.match_info["run_id"]))

    async def delete(request: web.Request, caller: Caller) -> web.StreamResponse:
        return json_response(await runs.delete(request.match_info["run_id"]))

    async def events(request: web.Request, caller: Caller) -> web.StreamResponse:
        run_id = request.match_info["run_id"]
        query = query_of(request, EventsQuery)
        if "text/event-stream" in request.headers.get("Accept", ""):
            return await event_stream(request, runs, run_id, query.cursor, plane.over)
        return json_response(await runs.events(run_id, query.cursor, query.limit, query.wait))

    async def metrics(request: web.Request, caller: Caller) -> web.StreamResponse:
        run_id = request.match_info["run_id"]
        query = query_of(request, MetricsQuery)
        found: dict[str, Any] = await runs.metrics(run_id, query.name)
        if query.format == "json":
            return json_response(found)
        return web.Response(
            text=metrics_csv(run_id, found["metrics"]),
            content_type="text/csv",
            charset="utf-8",
            headers={"Content-Disposition": disposition(f"{run_id}-metrics.csv")},
        )

    missing = ("run.not_found",)
    return [
        Route(
            method="POST",
            path="/api/runs",
            handler=submit,
            auth=Auth.SESSION,
            request=SubmitBody,
            response=Submitted,
            body_limit_bytes=plane.settings.max_run_body_bytes,
            errors=(
                "request.invalid",
                "graph.invalid",
                "run.option_unknown",
                "run.option_invalid",
                "target.unknown",
                "target.not_served",
                "target.device_unknown",
                "target.types_missing",
                "storage.refused",
                "storage.full",
                "catalog.loading",
                "server.stopping",
            ),
            summary="Queue a run",
        ),
        Route(
            method="GET",
            path="/api/runs",
            handler=listing,
            auth=Auth.OPEN,
            query=RunsQuery,
            response=Runs,
            summary="Runs, newest first",
        ),
        Route(
            method="GET",
            path="/api/runs/{run_id}",
            handler=get,
            auth=Auth.OPEN,
            response=Run,
            errors=missing,
            summary="One run",
        ),
        Route(
            method="DELETE",
            path="/api/runs/{run_id}",
            handler=delete,
            auth=Auth.SESSION,
            response=Gone,
            errors=(*missing, "run.active"),
            summary="Remove a run that has ended",
        ),
        Route(
            method="POST",
            path="/api/runs/{run_id}/cancel",
            handler=cancel,
            auth=Auth.SESSION,
            response=Cancelled,
            errors=missing,
            summary="Stop a run",
        ),
        Route(
            method="GET",
            path="/api/runs/{run_id}/events",
            handler=events,
            auth=Auth.OPEN,
            query=EventsQuery,
            response=Events,
            also_answers=("text/event-stream",),
            errors=missing,
            summary="Its events: a page, a long poll, or a stream of server-sent events",
        ),
        Route(
            method="GET",
            path="/api/runs/{run_id}/metrics",
            handler=metrics,
            auth=Auth.OPEN,
            query=MetricsQuery,
            response=Metrics,
            also_answers=("text/csv",),
            errors=missing,
            summary="Its metrics, as JSON or CSV",
        ),
    ]


def envelope(value: Any) -> tuple[dict[str, Any], dict[str, Any], str, str | None]:
    """Graph, options, name and submit id out of a body.

    Raises: CodefyError ``request.schema`` without a graph, ``request.invalid`` for the rest of the envelope.
    """
    if not isinstance(value, dict) or not isinstance(value.get("graph"), dict):
        raise CodefyError(
            'The body is {"graph": {...}, "options"?, "name"?}: the graph is missing.', code="request.schema"
        )
    unknown = sorted(set(value) - {"graph", "options", "name", "submit_id"})
    if unknown:
        raise CodefyError(f"The body has unknown keys: {', '.join(unknown)}.", code="request.invalid")
    options = value.get("options")
    if options is not None and not isinstance(options, dict):
        raise CodefyError("options must be an object.", code="request.invalid")
    return (
        value["graph"],
        options or {},
        _text(value, "name", 64) or "",
        _text(value, "submit_id", 64) or None,
    )


def _text(value: dict[str, Any], key: str, limit: int) -> str | None:
    found = value.get(key)
    if found is not None and (not isinstance(found, str) or len(found) > limit):
        raise CodefyError(f"{key} must be a text of at most {limit} characters.", code="request.invalid")
    return found


COLUMNS = ("run_id", "node_id", "name", "step", "value", "ts")


def metrics_csv(run_id: str, rows: Sequence[dict[str, Any]]) -> str:
    """With a byte-order mark, for spreadsheets; cells that would be formulas get a quote in front."""
    out = io.StringIO()
    out.write("\ufeff")
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for row in rows:
        value = row.get("special") or row["value"]
        writer.writerow([run_id, _cell(row["node_id"]), _cell(row["name"]), row["step"], value, row["ts"]])
    return out.getvalue()


def _cell(value: str | None) -> str:
    text = value or ""
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r", "\n"} else text
