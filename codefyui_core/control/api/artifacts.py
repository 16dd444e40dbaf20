"""What runs recorded: list, download, delete. And what a worker's run reads, by its hash."""

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web
from pydantic import BaseModel, Field

from codefyui_core.errors import CodefyError
from codefyui_core.ids import Sha256
from codefyui_core.plugin.http import Auth, Caller, Route
from codefyui_core.plugin.storage import LocalFile, Redirect, Stream

from .answers import json_response
from .bodies import query_of
from .models import Artifacts
from .sending import Span, send_file, send_open, send_stream, span_of

if TYPE_CHECKING:
    from codefyui_core.control.plane import ControlPlane


class ArtifactsQuery(BaseModel):
    """Which kind."""

    kind: str | None = Field(None, max_length=128)


class ArtifactGone(BaseModel):
    """The artifact is off the list."""

    run_id: str
    artifact_id: str
    deleted: bool
    warning: str | None = None
    """Why its bytes stay."""


def routes(plane: "ControlPlane") -> list[Route]:
    runs = plane.runs

    async def listing(request: web.Request, caller: Caller) -> web.StreamResponse:
        kind = query_of(request, ArtifactsQuery).kind
        return json_response(await runs.artifacts(request.match_info["run_id"], kind))

    async def download(request: web.Request, caller: Caller) -> web.StreamResponse:
        run_id, artifact_id = request.match_info["run_id"], request.match_info["artifact_id"]
        span = span_of(request)
        if span is not None and not await _goes_on(request, run_id, artifact_id):
            span = None
        row, reading = await runs.artifact_reading(run_id, artifact_id, span)
        name = str(row["name"]).rstrip("/").rpartition("/")[2] or "artifact"
        if isinstance(reading, LocalFile):
            return await send_file(request, reading.path, name)
        if isinstance(reading, Redirect):
            raise web.HTTPFound(reading.url, headers={"Cache-Control": "no-store"})
        return await _send(request, reading, name, span, row.get("size_bytes"), row.get("sha256"))

    async def _goes_on(request: web.Request, run_id: str, artifact_id: str) -> bool:
        """Is it still what the client has the beginning of? Of a local file, sending it says so."""
        wanted = request.headers.get("If-Range")
        if wanted is None:
            return True
        row = await runs.artifact(run_id, artifact_id)
        return wanted == _tag(row.get("sha256"))

    async def delete(request: web.Request, caller: Caller) -> web.StreamResponse:
        run_id, artifact_id = request.match_info["run_id"], request.match_info["artifact_id"]
        return json_response(await runs.delete_artifact(run_id, artifact_id))

    async def fetch(request: web.Request, caller: Caller) -> web.StreamResponse:
        run_id, sha256 = request.match_info["run_id"], request.match_info["sha256"]
        item = plane.ticketed.of(run_id).get(Sha256(sha256))
        if item is None:
            raise CodefyError(f"Run {run_id} reads no file with the hash {sha256}.", code="files.not_found")
        try:
            file = await asyncio.to_thread(plane.inputs.open, item)
        except FileNotFoundError:
            message = f"{item.name}, which run {run_id} reads, isn't here any more."
            raise CodefyError(message, code="files.not_found") from None
        with file:
            return await send_open(request, file, plane.inputs.path(item), item.name.rpartition("/")[2])

    missing = ("run.not_found", "artifact.not_found")
    return [
        Route(
            method="GET",
            path="/api/runs/{run_id}/artifacts",
            handler=listing,
            auth=Auth.OPEN,
            query=ArtifactsQuery,
            response=Artifacts,
            errors=("run.not_found",),
            summary="What it recorded",
        ),
        Route(
            method="GET",
            path="/api/runs/{run_id}/artifacts/{artifact_id}/download",
            handler=download,
            auth=Auth.OPEN,
            errors=(*missing, "artifact.arriving", "artifact.not_here", "storage.busy", "storage.refused"),
            answers="application/octet-stream",
            summary="The bytes of one artifact; a folder as a zip",
        ),
        Route(
            method="DELETE",
            path="/api/runs/{run_id}/artifacts/{artifact_id}",
            handler=delete,
            auth=Auth.SESSION,
            response=ArtifactGone,
            errors=(*missing, "run.active"),
            summary="Remove one artifact of a run that has ended",
        ),
        Route(
            method="GET",
            path="/api/runs/{run_id}/inputs/{sha256}",
            handler=fetch,
            auth=Auth.RUN_WORKER,
            errors=("files.not_found",),
            answers="application/octet-stream",
            summary="For the worker of a run: one of the files that it reads",
        ),
    ]


async def _send(
    request: web.Request, reading: Stream, name: str, span: Span | None, size: object, sha256: object
) -> web.StreamResponse:
    whole = size if isinstance(size, int) else None
    return await send_stream(request, reading, name=name, span=span, whole=whole, tag=_tag(sha256))


def _tag(sha256: object) -> str | None:
    """Of bytes that are elsewhere. A local file may have been written over, so its tag is its time and size."""
    return f'"{sha256}"' if isinstance(sha256, str) else None
