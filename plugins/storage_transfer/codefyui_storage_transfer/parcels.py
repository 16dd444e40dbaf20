"""The route by which agents send many small outputs with one request."""

import hashlib
from collections.abc import AsyncIterator

from aiohttp import StreamReader, web
from pydantic import ValidationError

from codefyui_core.plugin import (
    Arrived,
    AttemptView,
    Auth,
    BadName,
    Caller,
    CodefyError,
    Coming,
    ControlStoreHost,
    Route,
)

from .models import (
    MANIFEST_BYTES,
    PARCEL_BYTES,
    PARCEL_PATH,
    Announced,
    Failed,
    Manifest,
    ParcelAnswer,
    ParcelQuery,
    Uploaded,
)
from .places import Here, Target, arriving
from .shapes import FENCE, attempt_of, exists, misshapen, over
from .stored import listed, uploaded
from .turns import Turns


class Parcels:
    """Each file of a parcel fails alone; the receipts that follow list what is here."""

    def __init__(self, host: ControlStoreHost, turns: Turns) -> None:
        self._host = host
        self._turns = turns

    def route(self) -> Route:
        return Route(
            method="POST",
            path=PARCEL_PATH,
            handler=self._take,
            auth=Auth.RUN_WORKER,
            body_limit_bytes=MANIFEST_BYTES + PARCEL_BYTES,
            query=ParcelQuery,
            response=ParcelAnswer,
            accepts="application/octet-stream",
            errors=(
                "request.invalid",
                "request.too_large",
                "request.too_slow",
                "run.attempt_over",
                "run.not_yours",
                "upload.mismatch",
            ),
            summary="An agent sends small files that a run wrote, many at once",
        )

    async def _take(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        attempt = attempt_of(caller)
        async with self._turns.of(attempt.worker_id):
            manifest, begun = await _manifest(request)
            here = Here(self._host.run_files, self._host.folders)
            placed = [self._coming(here, attempt, one) for one in manifest.files]
            arrived = await self._host.arrivals.take(
                attempt.run_id,
                [coming for coming, _ in placed],
                _bytes(begun, request.content),
                lambda: self._check(attempt),
            )
        alone = FENCE not in request.headers
        files = [
            await self._said(attempt if alone else None, announced, where, found)
            for announced, (_, where), found in zip(manifest.files, placed, arrived, strict=True)
        ]
        return web.json_response(text=ParcelAnswer(files=files).model_dump_json())

    async def _said(
        self,
        listing: AttemptView | None,
        announced: Announced,
        where: Target | None,
        found: Arrived | CodefyError,
    ) -> Uploaded | Failed:
        """``listing``: no receipt follows, so that it is listed here, for this attempt."""
        if isinstance(found, Arrived) and (found.size_bytes, found.sha256) != (
            announced.size,
            announced.sha256,
        ):
            found = exists(announced.key)
        if isinstance(found, CodefyError):
            return Failed(code=found.code, detail=found.message)
        assert where is not None, "what has no place doesn't arrive"
        answer = uploaded(where, found)
        if listing is not None:
            stored = listed(announced.key, announced.kind, announced.name, where, found)
            answer.artifact_id = await self._host.record(listing, stored)
        return answer

    def _coming(self, here: Here, attempt: AttemptView, one: Announced) -> tuple[Coming, Target | None]:
        limit = self._host.max_upload_bytes
        try:
            where, file = arriving(
                here,
                attempt.run_id,
                key=one.key,
                kind=one.kind,
                name=one.name,
                relative_path=one.relative_path,
            )
        except BadName as error:
            return Coming(size_bytes=one.size, sha256=one.sha256, file=error), None
        if one.size > limit:
            large = CodefyError(
                f"{one.name} has {one.size} bytes; this server takes {limit} (CODEFYUI_MAX_UPLOAD_SIZE).",
                code="request.too_large",
            )
            return Coming(size_bytes=one.size, sha256=one.sha256, file=large), None
        return Coming(size_bytes=one.size, sha256=one.sha256, file=file), where

    async def _check(self, attempt: AttemptView) -> None:
        if await self._host.attempt(attempt.run_id) != attempt:
            raise over(attempt)


async def _manifest(request: web.Request) -> tuple[Manifest, bytes]:
    """And what came with it of the files."""
    line, end, begun = bytearray(), b"", b""
    said = request.query.get("sha256")
    async for chunk, _ in request.content.iter_chunks():
        more, end, begun = chunk.partition(b"\n")
        line += more
        if end or len(line) >= MANIFEST_BYTES:
            break
    if not end or len(line) >= MANIFEST_BYTES:
        raise CodefyError(
            f"The first line, which says what follows, doesn't end within {MANIFEST_BYTES} bytes.",
            code="request.invalid",
        )
    if said is not None and hashlib.sha256(line + end).hexdigest() != said:
        raise CodefyError(
            "The first line, which says what follows, arrived with other content than it was sent with. Send it again.",
            code="upload.mismatch",
        )
    try:
        manifest = Manifest.model_validate_json(line)
    except ValidationError as error:
        raise misshapen(error) from None
    n_bytes = sum(one.size for one in manifest.files)
    length = request.content_length
    if n_bytes > PARCEL_BYTES or (length is not None and length != len(line) + 1 + n_bytes):
        raise CodefyError(
            f"The files have {n_bytes} bytes by the first line, and the body {length} with it; {PARCEL_BYTES} bytes of "
            "files may come together.",
            code="request.invalid",
        )
    return manifest, begun


async def _bytes(begun: bytes, content: StreamReader) -> AsyncIterator[bytes]:
    if begun:
        yield begun
    async for chunk, _ in content.iter_chunks():  # as they came: ``iter_any`` copies them together
        yield chunk
