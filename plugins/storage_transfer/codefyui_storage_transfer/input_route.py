"""The route by which workers get small inputs: many with one request."""

import asyncio
import os
from collections.abc import Mapping, Sequence

from aiohttp import web
from pydantic import ValidationError

from codefyui_core.plugin import (
    Auth,
    BadName,
    Caller,
    CodefyError,
    ControlStoreHost,
    FormProblem,
    InputFiles,
    InputItem,
    Problem,
    Route,
    Sha256,
)

from .ahead import ended, through
from .input_parcel import DETAIL_CHARACTERS, FILE_BYTES, INPUTS_PATH, Asked, Listed, Manifest
from .models import KIB, MIB

PROBLEMS = 8
"""Of one body that are told."""
PIECE_BYTES = MIB
"""So much is read at once, and is there twice: what is sent, and what is next."""


class BodyProblem(FormProblem):
    """A body that isn't of the route's shape."""

    default_code = "request.schema"


class InputParcels:
    """Only what the run reads, and only to the worker that holds it."""

    def __init__(self, host: ControlStoreHost) -> None:
        self._host = host

    def routes(self) -> Sequence[Route]:
        return (
            Route(
                method="POST",
                path=INPUTS_PATH,
                handler=self._send,
                auth=Auth.RUN_WORKER,
                body_limit_bytes=64 * KIB,
                request=Asked,
                answers="application/octet-stream",
                errors=("request.schema", "run.attempt_over", "run.not_yours"),
                summary="For the worker of a run: small files that it reads, many with one request",
            ),
        )

    async def _send(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        assert caller.attempt is not None, "the gate lets only the run's worker in"
        asked = _asked(await request.read())
        reads = await self._host.reads(caller.attempt.run_id)
        with self._host.input_files() as files:
            parcel = Parcel(files, reads, asked.inputs)
            piece = await through(parcel.begin)
            response = web.StreamResponse(
                headers={"Content-Type": "application/octet-stream", "Content-Length": str(parcel.n_bytes)}
            )
            try:
                await response.prepare(request)
                while piece:
                    piece = await _while_reading(parcel, response, piece)
            except Changed as error:
                # The list went out before: all that can still be said is that this isn't the whole.
                self._host.log.info("%s", error)
                if request.transport is not None:
                    request.transport.abort()
        return response


async def _while_reading(parcel: "Parcel", response: web.StreamResponse, piece: bytearray) -> bytearray:
    """Sends a piece; the next one."""
    reading = asyncio.ensure_future(asyncio.to_thread(parcel.piece))
    try:
        await response.write(piece)
        return await asyncio.shield(reading)
    finally:
        await ended(reading)  # the files are closed next


class Changed(CodefyError):
    """A file isn't any more what the list says."""


class Parcel:
    """The answer to one request. All of it blocks."""

    def __init__(self, files: InputFiles, reads: Mapping[Sha256, InputItem], asked: Sequence[Sha256]) -> None:
        self._files = files
        self._reads = reads
        self._asked = asked
        self._coming: list[InputItem] = []
        self._next = 0
        self.n_bytes = 0

    def begin(self) -> bytearray:
        """The list, and the first files behind it."""
        listed = [self._listed(sha256) for sha256 in self._asked]
        manifest = Manifest.model_construct(files=listed).model_dump_json(exclude_none=True).encode() + b"\n"
        self._coming = [self._reads[one.sha256] for one in listed if one.size is not None]
        self.n_bytes = len(manifest) + sum(item.size_bytes for item in self._coming)
        return self.piece(manifest)

    def piece(self, head: bytes = b"") -> bytearray:
        """The next whole files; nothing at the end. Raises: Changed."""
        items: list[InputItem] = []
        n_bytes = 0
        for item in self._coming[self._next :]:
            if items and n_bytes + item.size_bytes > PIECE_BYTES:
                break
            items.append(item)
            n_bytes += item.size_bytes
        self._next += len(items)
        piece = bytearray(len(head) + n_bytes)
        piece[: len(head)] = head
        room = memoryview(piece)[len(head) :]
        for item in items:
            self._read(item, room[: item.size_bytes])
            room = room[item.size_bytes :]
        return piece

    def _read(self, item: InputItem, into: memoryview) -> None:
        try:
            with self._files.open(item) as file:
                n_read = file.readinto(into) if into else 0  # type: ignore[attr-defined]  # no readinto in BinaryIO
                if n_read == len(into) == os.fstat(file.fileno()).st_size:
                    return
        except (OSError, BadName) as error:
            raise Changed(f"{item.name} went while it was sent: {error}") from error
        raise Changed(f"{item.name} changed its size while it was sent")

    def _listed(self, sha256: Sha256) -> Listed:
        item = self._reads.get(sha256)
        if item is None:
            return _refused(sha256, "files.not_found", "the run reads no file with this hash")
        if item.size_bytes > FILE_BYTES:
            return _refused(
                sha256, "request.too_large", f"{item.name} goes alone: it has {item.size_bytes} bytes"
            )
        try:
            size = self._files.size(item)
        except FileNotFoundError:
            return _refused(sha256, "files.not_found", f"{item.name} isn't here any more")
        except BadName as error:
            return _refused(sha256, error.code, error.message)
        except OSError as error:
            return _refused(sha256, "storage.busy", f"{item.name} can't be read: {error.strerror}")
        if size != item.size_bytes:
            return _refused(
                sha256,
                "storage.corrupt",
                f"{item.name} was changed on the server since the run got it: it has {size} bytes now, "
                f"not {item.size_bytes}",
            )
        return Listed.model_construct(sha256=sha256, size=size)


def _refused(sha256: Sha256, code: str, detail: str) -> Listed:
    return Listed(sha256=sha256, code=code, detail=detail[-DETAIL_CHARACTERS:])


def _asked(body: bytes) -> Asked:
    """Raises: BodyProblem; CodefyError ``request.not_json``."""
    try:
        return Asked.model_validate_json(body)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        if found[0]["type"] == "json_invalid":
            raise CodefyError(f"The body isn't JSON: {found[0]['msg']}", code="request.not_json") from None
        raise BodyProblem(
            [
                Problem(
                    message=f"{'.'.join(map(str, one['loc']))}: {one['msg']}",
                    field=".".join(map(str, one["loc"])) or None,
                    code=one["type"],
                )
                for one in found[:PROBLEMS]
            ]
        ) from None
