"""The routes by which workers send outputs: a piece a request, a whole file, or many small ones."""

import hashlib
from collections.abc import AsyncIterator, Sequence

from aiohttp import web
from pydantic import ValidationError

from codefyui_core.plugin import (
    Arrived,
    Arriving,
    AttemptView,
    Auth,
    Caller,
    CodefyError,
    ControlStoreHost,
    Route,
    Sha256,
)

from .answers import answer
from .blocks import Blocks, Damaged, body_bytes, content_bytes
from .models import LEAST_BLOCK_BYTES, UPLOAD_PATH, Uploaded, UploadQuery
from .parcels import Parcels
from .places import Target, arriving
from .shapes import FENCE, attempt_of, exists, misshapen, over
from .stored import listed, uploaded
from .turns import Turns

MANY = (
    "files.bad_name",
    "request.invalid",
    "request.too_large",
    "request.too_slow",
    "run.attempt_over",
    "run.not_yours",
    "storage.full",
    "upload.exists",
    "upload.mismatch",
    "upload.needs_hash",
    "upload.not_found",
    "upload.offset",
)


class Uploads:
    """Checks what comes from a worker and hands it to the host's arrivals.

    What an agent sends is listed by the receipt that follows; it brings the node and what the run says about the
    file. An upload without an attempt's fence has no receipt behind it (a person's own script), and is listed here.
    """

    def __init__(self, host: ControlStoreHost) -> None:
        self._host = host
        self._turns = Turns()
        self._parcels = Parcels(host, self._turns)

    def routes(self) -> Sequence[Route]:
        return (
            Route(
                method="POST",
                path=UPLOAD_PATH,
                handler=self._take,
                auth=Auth.RUN_WORKER,
                body_limit_bytes=body_bytes(self._host.max_upload_bytes, LEAST_BLOCK_BYTES),
                query=UploadQuery,
                response=Uploaded,
                accepts="application/octet-stream",
                errors=MANY,
                summary="A worker sends a file that a run wrote, whole or a piece of it",
            ),
            Route(
                method="GET",
                path=UPLOAD_PATH,
                handler=self._say,
                auth=Auth.RUN_WORKER,
                query=UploadQuery,
                response=Uploaded,
                errors=("files.bad_name", "request.invalid", "run.attempt_over", "run.not_yours"),
                summary="How much of such a file is here",
            ),
            self._parcels.route(),
        )

    # ------------------------------------------------------------ handlers

    async def _say(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        attempt, asked = attempt_of(caller), _query(request)
        where, file = self._file(attempt, asked)
        arrivals = self._host.arrivals
        arrived = await arrivals.arrived(file.run_id, file.key)
        if arrived is not None:
            return answer(uploaded(where, arrived))
        return answer(Uploaded(offset=await arrivals.offset(file)))

    async def _take(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        attempt, asked = attempt_of(caller), _query(request)
        where, file = self._file(attempt, asked)
        self._check_size(asked, _n_coming(request, asked))
        async with self._turns.of(attempt.worker_id):
            if asked.offset is None:
                arrived = await self._take_whole(request, attempt, asked, file)
            else:
                offset = await self._take_piece(request, asked, file, asked.offset)
                if asked.size is None or (asked.sha256 is None and offset < asked.size):
                    return answer(Uploaded(offset=offset))
                arrived = await self._finish(attempt, file, asked.size, asked.sha256)
        found = uploaded(where, arrived)
        if FENCE not in request.headers:
            stored = listed(file.key, asked.kind, asked.name, where, arrived)
            found.artifact_id = await self._host.record(attempt, stored)
        return answer(found)

    # ------------------------------------------------------------ steps

    def _file(self, attempt: AttemptView, asked: UploadQuery) -> tuple[Target, Arriving]:
        """Raises: BadName."""
        return arriving(
            self._host,
            attempt.run_id,
            key=asked.key or hashlib.sha256(f"{asked.kind}\0{asked.name}".encode()).hexdigest()[:32],
            kind=asked.kind,
            name=asked.name,
            relative_path=asked.relative_path or asked.name,
        )

    def _check_size(self, asked: UploadQuery, n_coming: int) -> None:
        """Before a byte of it is read."""
        size, limit = max(asked.size or 0, (asked.offset or 0) + n_coming), self._host.max_upload_bytes
        if size > limit:
            raise CodefyError(
                f"{asked.name} has {size} bytes or more; this server takes {limit} (CODEFYUI_MAX_UPLOAD_SIZE).",
                code="request.too_large",
            )

    async def _take_piece(self, request: web.Request, asked: UploadQuery, file: Arriving, offset: int) -> int:
        """The new offset."""
        last = asked.size is not None and asked.sha256 is not None
        if last and offset and request.content_length == 0:
            return offset  # the file was whole before
        try:
            return await self._host.arrivals.append(file, offset, _content(request, asked))
        except CodefyError as error:
            if last and error.code == "upload.exists":
                return offset  # the answer to the same request was lost
            raise

    async def _take_whole(
        self, request: web.Request, attempt: AttemptView, asked: UploadQuery, file: Arriving
    ) -> Arrived:
        """Hashed here, as whoever sends a file with one command has no hash at hand."""
        body = _Hashing(_content(request, asked), self._host.max_upload_bytes)
        try:
            await self._host.arrivals.append(file, 0, body.chunks())
        except CodefyError as error:
            if error.code != "upload.exists":
                raise
            await body.drain()
        size = body.n_bytes if asked.size is None else asked.size
        return await self._finish(attempt, file, size, asked.sha256 or Sha256(body.digest.hexdigest()))

    async def _finish(
        self, attempt: AttemptView, file: Arriving, size: int, sha256: Sha256 | None
    ) -> Arrived:
        if await self._host.attempt(attempt.run_id) != attempt:
            raise over(attempt)
        arrived = await self._host.arrivals.finish(file, size_bytes=size, sha256=sha256)
        if (arrived.size_bytes, arrived.sha256) != (size, sha256 or arrived.sha256):
            raise exists(file.key)
        return arrived


def _n_coming(request: web.Request, asked: UploadQuery) -> int:
    length = request.content_length or 0
    return length if asked.block_bytes is None else content_bytes(length, asked.block_bytes)


async def _content(request: web.Request, asked: UploadQuery) -> AsyncIterator[bytes]:
    """The file's bytes of a body, in pieces as they came: joined, they would be copied. What came of a block before the
    line broke is among them.

    Raises: Damaged, after what came before it.
    """
    pieces = (piece async for piece, _ in request.content.iter_chunks())
    if asked.block_bytes is None:
        async for piece in pieces:
            yield piece
        return
    blocks = Blocks(asked.name, asked.block_bytes)
    try:
        async for piece in pieces:
            for checked in blocks.fed(piece):
                yield checked
    except Damaged:
        raise
    except Exception:
        for piece in blocks.begun():
            yield piece
        raise
    for checked in blocks.ended():
        yield checked


class _Hashing:
    """A body, hashed as it is read."""

    def __init__(self, chunks: AsyncIterator[bytes], limit_bytes: int) -> None:
        self._chunks = chunks
        self._limit_bytes = limit_bytes
        self.digest = hashlib.sha256()
        self.n_bytes = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._chunks:
            self.digest.update(chunk)
            self.n_bytes += len(chunk)
            yield chunk

    async def drain(self) -> None:
        """Raises: CodefyError ``request.too_large`` for a body without an end."""
        async for _ in self.chunks():
            if self.n_bytes > self._limit_bytes:
                raise CodefyError("The body is larger than this server takes.", code="request.too_large")


def _query(request: web.Request) -> UploadQuery:
    try:
        return UploadQuery.model_validate(dict(request.query))
    except ValidationError as error:
        raise misshapen(error) from None
