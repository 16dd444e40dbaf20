"""Uploads of the three families: list, upload, download, delete."""

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web
from pydantic import BaseModel

from codefyui_core.control.files.uploads import Uploads
from codefyui_core.files import Family
from codefyui_core.plugin.http import Auth, Caller, Handler, Route

from .answers import json_response
from .bodies import query_of
from .forms import files_of, unreadable
from .models import Files
from .sending import send_open

if TYPE_CHECKING:
    from codefyui_core.control.plane import ControlPlane

FAMILIES = (Family.FILES, Family.IMAGES, Family.MODELS)
ENVELOPE_BYTES = 64 * 1024


class UploadQuery(BaseModel):
    """What to do with a name that is taken by other content."""

    overwrite: bool = False


class Stored(BaseModel):
    """One file that was taken in."""

    name: str
    size_bytes: int
    sha256: str
    replaced: bool


class Removed(BaseModel):
    """One file that is gone."""

    name: str
    deleted: bool


def routes(plane: "ControlPlane") -> list[Route]:
    limit = plane.settings.max_upload_size
    folders = plane.install.folders()
    found: list[Route] = []
    for family in FAMILIES:
        store = Uploads(family=family, folder=folders.of(family), limit_bytes=limit)
        found += _family_routes(store, limit)
    return found


def _family_routes(store: Uploads, limit: int) -> list[Route]:
    base = f"/api/{store.family.value}"

    async def listing(request: web.Request, caller: Caller) -> web.StreamResponse:
        return json_response(await asyncio.to_thread(store.list))

    async def download(request: web.Request, caller: Caller) -> web.StreamResponse:
        opening = store.open(request.match_info["name"])
        file, path = await asyncio.to_thread(opening.__enter__)
        try:
            return await send_open(request, file, path, path.name)
        finally:
            opening.__exit__(None, None, None)

    async def delete(request: web.Request, caller: Caller) -> web.StreamResponse:
        name = request.match_info["name"]
        await asyncio.to_thread(store.delete, name)
        return json_response({"name": name, "deleted": True})

    missing = ("upload.not_found", "files.bad_name")
    return [
        Route(
            method="GET",
            path=f"{base}/list",
            handler=listing,
            auth=Auth.OPEN,
            response=Files,
            summary=f"Uploaded {store.family.value}",
        ),
        Route(
            method="POST",
            path=f"{base}/upload",
            handler=_upload(store, limit + ENVELOPE_BYTES),
            auth=Auth.SESSION,
            query=UploadQuery,
            response=Stored,
            accepts="multipart/form-data",
            body_limit_bytes=limit + ENVELOPE_BYTES,
            errors=(
                "upload.bad_name",
                "upload.bad_type",
                "upload.exists",
                "request.invalid",
                "request.too_large",
                "request.too_slow",
                "storage.full",
            ),
            summary=f"Upload into {store.family.value}",
        ),
        Route(
            method="GET",
            path=f"{base}/download/{{name:.+}}",
            handler=download,
            auth=Auth.OPEN,
            on_links=True,
            errors=missing,
            answers="application/octet-stream",
            summary=f"An uploaded file of {store.family.value}",
        ),
        Route(
            method="DELETE",
            path=f"{base}/{{name:.+}}",
            handler=delete,
            auth=Auth.SESSION,
            response=Removed,
            errors=missing,
            summary=f"Delete an uploaded file of {store.family.value}",
        ),
    ]


def _upload(store: Uploads, limit: int) -> Handler:
    async def upload(request: web.Request, caller: Caller) -> web.StreamResponse:
        overwrite = query_of(request, UploadQuery).overwrite
        stored = [
            await store.store(file.name, file.chunks(), overwrite=overwrite)
            async for file in files_of(request, limit)
        ]
        if not stored:
            raise unreadable("it has no field named file")
        return json_response(stored[0] if len(stored) == 1 else {**stored[0], "files": stored})

    return upload
