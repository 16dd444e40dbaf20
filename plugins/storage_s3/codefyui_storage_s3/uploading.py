"""Sends a file to a bucket: in one piece, or in parts of which a later try sends only those that are missing.

Both halves use it. The bytes are hashed while they are read. Over plain HTTP a request's signature covers its body, and
TLS covers it otherwise, so the bytes that arrive are those that were sent; sizes and the bucket's answers say that they
were stored so.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from codefyui_core.plugin import Corrupt, Progress, Refused, Sha256, TransferStopped

from .body import Sending
from .client import BucketClient
from .models import UploadNotes
from .problems import AlreadyThere, UploadGone

ONE_PIECE_BYTES = 16 << 20
"""Files below go in one request."""
PART_BYTES = 16 << 20
MARK = "output"
MOST_PARTS = 10_000
SMALL_BYTES = 1 << 20
"""Files below are many: their bodies are handed over whole, as there is no use in asking whether the bucket wants them,
and they wait for no room in memory.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A file that is in the bucket."""

    sha256: Sha256
    size_bytes: int
    etag: str
    upload_id: str = ""


class Memory(Protocol):
    """What outlives a try."""

    async def begun(self, notes: UploadNotes) -> None:
        """On disk, and told, when it returns: the first part goes after it."""
        ...

    async def changed(self, notes: UploadNotes) -> None: ...


def part_bytes_for(size_bytes: int) -> int:
    """As small as the number of parts allows."""
    least = -(-size_bytes // MOST_PARTS)
    return max(PART_BYTES, -(-least // (1 << 20)) << 20)


def send_whole(
    client: BucketClient,
    key: str,
    data: bytes,
    progress: Progress,
    *,
    only_if_absent: bool = False,
    mark: str = "",
) -> Sent:
    """Blocking, so that a small file costs one turn of a thread.

    Raises: StorageProblem, AlreadyThere; Corrupt when the bucket holds other bytes than were sent.
    """
    digest = Sha256(hashlib.sha256(data).hexdigest())
    condition = {"IfNoneMatch": "*"} if only_if_absent else {}
    small = len(data) < SMALL_BYTES
    answer = client.ask(
        "put_object",
        key,
        Body=data if small else Sending(data, progress),
        Metadata={"sha256": digest, **marked(mark)},
        **condition,
    )
    if small:
        progress.advance(len(data))
    etag = str(answer.get("ETag", ""))
    if _is_md5(etag) and answer.get("ServerSideEncryption", "AES256") == "AES256":
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if md5 != etag.strip('"'):
            raise Corrupt(f"{key}: the bucket stored other bytes than were sent")
    return Sent(sha256=digest, size_bytes=len(data), etag=etag)


def marked(mark: str) -> dict[str, str]:
    """Metadata of an object."""
    return {MARK: mark} if mark else {}


def _is_md5(etag: str) -> bool:
    return re.fullmatch(r'"?[0-9a-f]{32}"?', etag) is not None


class Parts:
    """One multipart upload. Each part goes with the newest keys; after a failure no part begins, those on their way are
    waited for and noted, and a later ``send`` goes on from the notes.
    """

    def __init__(
        self,
        *,
        path: Path,
        size_bytes: int,
        key: str,
        client: Callable[[], BucketClient],
        memory: Memory,
        slots: asyncio.Semaphore,
        progress: Progress,
        only_if_absent: bool = False,
        expected: Sha256 | None = None,
        mark: str = "",
        taken: tuple[str, ...] = (),
    ) -> None:
        """``slots`` bounds the parts in memory. With ``expected``, a file of another hash is never completed. ``taken`` is
        kept in the notes.
        """
        self._path = path
        self._size = size_bytes
        self._key = key
        self._client = client
        self._memory = memory
        self._slots = slots
        self._progress = progress
        self._condition: dict[str, Any] = {"IfNoneMatch": "*"} if only_if_absent else {}
        self._expected = expected
        self._mark = mark
        self._taken = taken

    async def send(self, notes: UploadNotes | None) -> Sent:
        """``notes`` of an earlier try.

        Raises: StorageProblem; Refused when the file changes meanwhile; AlreadyThere also when it may be this file that is
        there.
        """
        bucket = self._client().bucket
        if notes is not None and (notes.key, notes.size_bytes, notes.bucket) == (
            self._key,
            self._size,
            bucket,
        ):
            try:
                return await self._go_on(notes)
            except (
                UploadGone
            ):  # aborted meanwhile, by a rule of the bucket or a person; or completed, and the answer lost
                if self._condition and len(notes.etags) == notes.n_parts:
                    raise AlreadyThere(f"{self._key}: its upload may be completed") from None
        return await self._go_on(await self._begin())

    async def _begin(self) -> UploadNotes:
        client = self._client()
        answer = await client.call("create_multipart_upload", self._key, Metadata=marked(self._mark))
        notes = UploadNotes(
            bucket=client.bucket,
            key=self._key,
            upload_id=answer["UploadId"],
            size_bytes=self._size,
            part_bytes=part_bytes_for(self._size),
            taken=self._taken,
        )
        await self._memory.begun(notes)
        return notes

    async def _go_on(self, notes: UploadNotes) -> Sent:
        etags = dict(notes.etags)
        digest = await self._send_missing(notes, etags)
        if self._expected is not None and digest != self._expected:
            raise Refused(f"{self._path} changed while it was sent; try again")
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in sorted(etags.items())]
        answer = await self._client().call(
            "complete_multipart_upload",
            self._key,
            UploadId=notes.upload_id,
            MultipartUpload={"Parts": parts},
            **self._condition,
        )
        return Sent(
            sha256=digest,
            size_bytes=self._size,
            etag=str(answer.get("ETag", "")),
            upload_id=notes.upload_id,
        )

    async def _send_missing(self, notes: UploadNotes, etags: dict[int, str]) -> Sha256:
        digest = hashlib.sha256()
        tasks: list[asyncio.Task[None]] = []
        try:
            for number in range(1, notes.n_parts + 1):
                await self._slots.acquire()
                if any(_failed(task) for task in tasks):
                    self._slots.release()
                    break
                data = await self._read(notes, number, digest)
                tasks.append(asyncio.create_task(self._part(notes, etags, number, data)))
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for task in tasks:
                task.cancel()
        _raise_of(outcomes)
        return Sha256(digest.hexdigest())

    async def _read(self, notes: UploadNotes, number: int, digest: "hashlib._Hash") -> bytes:
        """One part. The slot that was taken for it is given back when it fails."""

        def read() -> bytes:
            with self._path.open("rb") as file:
                file.seek((number - 1) * notes.part_bytes)
                data = file.read(notes.part_bytes)
            digest.update(data)
            return data

        try:
            data = await self._client().threads.run(read)
            if len(data) != min(notes.part_bytes, self._size - (number - 1) * notes.part_bytes):
                raise Refused(f"{self._path} changed while it was sent; try again")
        except BaseException:
            self._slots.release()
            raise
        return data

    async def _part(self, notes: UploadNotes, etags: dict[int, str], number: int, data: bytes) -> None:
        try:
            if number in etags:
                self._progress.advance(len(data))
                return
            answer = await self._client().call(
                "upload_part",
                self._key,
                UploadId=notes.upload_id,
                PartNumber=number,
                Body=Sending(data, self._progress),
            )
        finally:
            self._slots.release()
        etags[number] = str(answer["ETag"])
        await self._memory.changed(notes.model_copy(update={"etags": dict(etags)}))


def _failed(task: "asyncio.Task[None]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _raise_of(outcomes: list[BaseException | None]) -> None:
    """A stop before a failure, of failures the first."""
    errors = [outcome for outcome in outcomes if outcome is not None]
    errors.sort(key=lambda error: not isinstance(error, TransferStopped))
    if errors:
        raise errors[0]
