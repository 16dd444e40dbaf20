"""Agent half: fetches inputs from the bucket and uploads what a run wrote, with keys that came for this run.

Keys are in memory alone: in no file, no log, no environment.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from codefyui_core.plugin import (
    AgentStoreHost,
    AttemptView,
    Expired,
    InputItem,
    JsonObject,
    Notes,
    Output,
    Progress,
    Refused,
    Sha256,
    StorageAgent,
    StorageSession,
)

from .boto import boto3_version
from .client import BucketClient
from .fetching import RANGE_BYTES, Fetch
from .keys import Keys
from .models import (
    MOST_TAKEN,
    S3Facts,
    S3Grant,
    S3Receipt,
    S3Ticket,
    UploadBegun,
    UploadNotes,
    input_key,
    output_key,
)
from .naming import Names, mark_of
from .problems import AlreadyThere, Missing, NotOffered
from .store_time import StoreTime
from .threads import Threads
from .uploading import ONE_PIECE_BYTES, SMALL_BYTES, Parts, Sent, send_whole

THREADS = 16
PARTS_AT_ONCE = 6
"""Of all uploads of one run, and files that aren't small: bounds their memory."""
LARGE_AT_ONCE = 4
"""Inputs of one run that come in ranges."""


class S3Agent(StorageAgent[S3Ticket, S3Receipt, S3Grant, S3Facts]):
    """Offered where boto3 is installed."""

    parallel = THREADS
    """Small files wait for answers most of their time. Large ones wait for each other."""

    def __init__(self, host: AgentStoreHost) -> None:
        self._host = host
        self._threads = Threads(THREADS, "s3")
        self._boto3: str | None = None

    async def start(self) -> None:
        self._boto3 = boto3_version()

    async def facts(self) -> S3Facts | None:
        return None if self._boto3 is None else S3Facts(boto3=self._boto3)

    def open(
        self, attempt: AttemptView, ticket: S3Ticket, grant: S3Grant | None
    ) -> AbstractAsyncContextManager["S3Session"]:
        return self._session(attempt, ticket, grant)

    @asynccontextmanager
    async def _session(
        self, attempt: AttemptView, ticket: S3Ticket, grant: S3Grant | None
    ) -> AsyncIterator["S3Session"]:
        session = S3Session(self._host, self._threads, attempt, ticket)
        if grant is not None:
            await session.renewed(grant)
        yield session

    async def aclose(self) -> None:
        self._threads.close()


class S3Session(StorageSession[S3Receipt, S3Grant]):
    """One attempt's way to the bucket."""

    def __init__(
        self, host: AgentStoreHost, threads: Threads, attempt: AttemptView, ticket: S3Ticket
    ) -> None:
        self.workspace = host.workspace(attempt)
        self._host = host
        self._threads = threads
        self._attempt = attempt
        self._ticket = ticket
        self._client: BucketClient | None = None
        self._store_time = StoreTime()
        self._slots = asyncio.Semaphore(PARTS_AT_ONCE)
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)
        self._names = Names()

    async def renewed(self, grant: S3Grant) -> None:
        """Each request that begins from now on is signed with these."""
        self._client = BucketClient(
            self._ticket.bucket,
            Keys.of(grant, self._host.clock.monotonic()),
            threads=self._threads,
            clock=self._host.clock,
            store_time=self._store_time,
            machine="worker",
        )

    def _newest(self) -> BucketClient:
        if self._client is None:
            raise Expired(
                f"there are no keys for bucket {self._ticket.bucket.name} since the agent's restart"
            )
        return self._client

    async def fetch(self, item: InputItem, into: Path, progress: Progress) -> Sha256:
        key = input_key(self._ticket.prefix, item.sha256)
        fetch = Fetch(key=key, size_bytes=item.size_bytes, into=into, client=self._newest, progress=progress)
        try:
            async with self._large if item.size_bytes > RANGE_BYTES else nullcontext():
                return await fetch.run()
        except Missing as error:
            raise Refused(f"{item.name} is no longer in the bucket: {error}; queue the run again") from None

    async def publish(self, output: Output, path: Path, notes: Notes, progress: Progress) -> S3Receipt:
        base = output_key(
            self._ticket.prefix,
            self._attempt.run_id,
            kind=output.kind,
            name=output.name,
            relative_path=output.relative_path,
        )
        begun = _read(notes.read())
        earlier = () if begun is None else begun.taken
        mark = mark_of(output.key)
        for key, own in self._names.for_output(base, output.key, None if begun is None else begun.key):
            upload = _Upload(
                path=path,
                key=key,
                mark=mark,
                taken=tuple(dict.fromkeys((*earlier, *self._names.all_taken(base))))[-MOST_TAKEN:],
                notes=notes,
                progress=progress,
            )
            try:
                sent = await self._send_absent(upload, own=own)
            except AlreadyThere:
                self._names.taken(key)
            else:
                self._names.stored(key)
                return _receipt(upload, sent)
        raise AssertionError("there is always a next number")

    async def _send_absent(self, upload: "_Upload", *, own: bool) -> Sent:
        """Raises: AlreadyThere, unless what is there is the output's own."""
        try:
            return await self._send(upload, only_if_absent=not own)
        except NotOffered:  # stores that don't know If-None-Match
            return await self._send(upload, only_if_absent=False)

    async def _send(self, upload: "_Upload", *, only_if_absent: bool) -> Sent:
        send = partial(_send_below, upload=upload, only_if_absent=only_if_absent)
        sent = await self._threads.run(send, SMALL_BYTES, self._newest())
        if sent is None:
            async with self._slots:
                sent = await self._threads.run(send, ONE_PIECE_BYTES, self._newest())
        if sent is not None:
            return sent
        parts = Parts(
            path=upload.path,
            size_bytes=(await self._threads.run(upload.path.stat)).st_size,
            key=upload.key,
            client=self._newest,
            memory=_Memory(self._host, self._attempt, upload.notes),
            slots=self._slots,
            progress=upload.progress,
            only_if_absent=only_if_absent,
            mark=upload.mark,
            taken=upload.taken,
        )
        return await parts.send(_read(upload.notes.read()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Upload:
    """One file under one key."""

    path: Path
    key: str
    mark: str
    taken: tuple[str, ...]
    notes: Notes
    progress: Progress


def _send_below(
    limit_bytes: int, client: BucketClient, *, upload: _Upload, only_if_absent: bool
) -> Sent | None:
    """Blocking, so that a small file costs one turn of a thread. None: it isn't below the limit."""
    if upload.path.stat().st_size >= limit_bytes:
        return None
    data = upload.path.read_bytes()
    return send_whole(
        client, upload.key, data, upload.progress, only_if_absent=only_if_absent, mark=upload.mark
    )


def _receipt(upload: _Upload, sent: Sent) -> S3Receipt:
    return S3Receipt(
        key=upload.key,
        mark=upload.mark,
        taken=upload.taken,
        sha256=sent.sha256,
        size_bytes=sent.size_bytes,
        etag=sent.etag,
        upload_id=sent.upload_id,
    )


def _read(notes: JsonObject) -> UploadNotes | None:
    """None also for notes of another version of ours: the upload begins anew."""
    try:
        return UploadNotes.model_validate(notes) if notes else None
    except ValidationError:
        return None


class _Memory:
    """The notes of one upload on this machine's disk, and the control plane's record of its id."""

    def __init__(self, host: AgentStoreHost, attempt: AttemptView, notes: Notes) -> None:
        self._host = host
        self._attempt = attempt
        self._notes = notes
        self._lock = asyncio.Lock()

    async def begun(self, notes: UploadNotes) -> None:
        begun = UploadBegun(key=notes.key, upload_id=notes.upload_id)
        await self._host.tell(self._attempt, begun.to_json())
        await self.changed(notes)

    async def changed(self, notes: UploadNotes) -> None:
        async with self._lock:
            await self._notes.write(notes.to_json())
