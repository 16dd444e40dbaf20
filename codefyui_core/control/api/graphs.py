"""Saved graphs, their validation, and the examples."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from codefyui_core.control.files.examples import Examples
from codefyui_core.control.files.graphs import GraphFiles
from codefyui_core.errors import Problem
from codefyui_core.files import Family
from codefyui_core.graph import Document, blank_secrets, validate
from codefyui_core.plugin.http import Auth, Caller, Route

from . import models
from .answers import json_response
from .bodies import SchemaProblem, body_of, json_of, query_of

if TYPE_CHECKING:
    from codefyui_core.control.plane import ControlPlane


class GraphBody(BaseModel):
    """A graph document; unknown keys are kept."""

    model_config = ConfigDict(extra="allow")

    name: str = "Untitled"
    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]] = []


class SaveBody(GraphBody):
    """A graph document with where to save it."""

    file: str | None = Field(None, max_length=255)
    overwrite: bool | None = None


class RenameBody(BaseModel):
    """From one name to another."""

    model_config = ConfigDict(extra="forbid")

    from_: str = Field(alias="from", min_length=1, max_length=255)
    to: str = Field(min_length=1, max_length=255)


class Validity(BaseModel):
    """What is wrong with a graph."""

    valid: bool
    errors: list[str]
    issues: list[dict[str, Any]]


class Saved(BaseModel):
    """Where a graph is now."""

    message: str
    path: str
    file: str


class Renamed(BaseModel):
    """Its name now."""

    message: str
    name: str
    file: str


class Deleted(BaseModel):
    """What is gone."""

    message: str
    removed: list[str]


class ExampleQuery(BaseModel):
    """Which example."""

    path: str = Field(min_length=1, max_length=1024)


def routes(plane: "ControlPlane") -> list[Route]:
    files = GraphFiles(folder=plane.install.folders().of(Family.GRAPHS))
    return [*_graph_routes(plane, files), *_example_routes(plane)]


def _graph_routes(plane: "ControlPlane", files: GraphFiles) -> list[Route]:
    async def check(request: web.Request, caller: Caller) -> web.StreamResponse:
        definitions = plane.catalog.ready().definitions
        value = await json_of(request)
        if not isinstance(value, dict):
            raise SchemaProblem([Problem(message="A graph is a JSON object with nodes and edges.")])
        document = Document.parse(value)
        issues = await asyncio.to_thread(validate, document, definitions)
        body = Validity(
            valid=not issues,
            errors=[issue.message for issue in issues],
            issues=[issue.to_json() for issue in issues],
        )
        return json_response(body.model_dump())

    async def save(request: web.Request, caller: Caller) -> web.StreamResponse:
        body = await body_of(request, SaveBody)
        definitions = plane.catalog.ready().definitions
        raw = body.model_dump(mode="python", exclude={"file", "overwrite"}, exclude_unset=True)
        document, _ = blank_secrets(Document.parse(raw), definitions)
        overwrite = True if body.overwrite is None else body.overwrite
        stem = await asyncio.to_thread(
            files.save, document.raw, body.name, file=body.file, overwrite=overwrite
        )
        path = str(files.folder / f"{stem}.json")
        return json_response(Saved(message=f"Saved {stem}.", path=path, file=stem).model_dump())

    async def load(request: web.Request, caller: Caller) -> web.StreamResponse:
        return json_response(await asyncio.to_thread(files.load, request.match_info["name"]))

    async def listing(request: web.Request, caller: Caller) -> web.StreamResponse:
        return json_response(await asyncio.to_thread(files.list))

    async def rename(request: web.Request, caller: Caller) -> web.StreamResponse:
        body = await body_of(request, RenameBody)
        stem = await asyncio.to_thread(files.rename, body.from_, body.to)
        return json_response(Renamed(message=f"Renamed to {stem}.", name=body.to, file=stem).model_dump())

    async def delete(request: web.Request, caller: Caller) -> web.StreamResponse:
        removed = await asyncio.to_thread(files.delete, request.match_info["name"])
        return json_response(Deleted(message=f"Deleted {removed}.", removed=[removed]).model_dump())

    naming = ("graph.not_found", "graph.bad_name", "files.bad_name", "graph.invalid")
    return [
        Route(
            method="POST",
            path="/api/graph/validate",
            handler=check,
            auth=Auth.SESSION,
            request=GraphBody,
            response=Validity,
            errors=("catalog.loading", "graph.invalid"),
            summary="What is wrong with a graph",
        ),
        Route(
            method="POST",
            path="/api/graph/save",
            handler=save,
            auth=Auth.SESSION,
            request=SaveBody,
            response=Saved,
            errors=("catalog.loading", "graph.exists", "storage.full", *naming),
            summary="Save a graph; SECRET values are left out",
        ),
        Route(
            method="GET",
            path="/api/graph/load/{name}",
            handler=load,
            auth=Auth.OPEN,
            response=models.Graph,
            errors=naming,
            summary="A saved graph",
        ),
        Route(
            method="GET",
            path="/api/graph/list",
            handler=listing,
            auth=Auth.OPEN,
            response=models.GraphFiles,
            summary="Saved graphs",
        ),
        Route(
            method="POST",
            path="/api/graph/rename",
            handler=rename,
            auth=Auth.SESSION,
            request=RenameBody,
            response=Renamed,
            errors=("graph.exists", *naming),
            summary="Rename a saved graph",
        ),
        Route(
            method="DELETE",
            path="/api/graph/{name}",
            handler=delete,
            auth=Auth.SESSION,
            response=Deleted,
            errors=naming,
            summary="Delete a saved graph",
        ),
    ]


def _example_routes(plane: "ControlPlane") -> list[Route]:
    def examples() -> Examples:
        catalog = plane.catalog.current
        own = plane.install.examples
        folders: list[tuple[str, Path]] = [] if own is None else [("builtin", own)]
        folders += [("plugin", path) for path in (catalog.examples if catalog else ())]
        return Examples(folders=tuple(folders))

    async def listing(request: web.Request, caller: Caller) -> web.StreamResponse:
        return json_response(await asyncio.to_thread(examples().list))

    async def load(request: web.Request, caller: Caller) -> web.StreamResponse:
        path = query_of(request, ExampleQuery).path
        return json_response(await asyncio.to_thread(examples().load, path))

    return [
        Route(
            method="GET",
            path="/api/examples/list",
            handler=listing,
            auth=Auth.OPEN,
            response=models.Examples,
            summary="Example graphs",
        ),
        Route(
            method="GET",
            path="/api/examples/load",
            handler=load,
            auth=Auth.OPEN,
            query=ExampleQuery,
            response=models.Graph,
            errors=("example.not_found", "files.bad_name", "graph.invalid"),
            summary="An example graph",
        ),
    ]
