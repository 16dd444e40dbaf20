"""Puts what runs read into the bucket: once per content, looked for each time, as rules of the bucket expire it."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path

from codefyui_core.plugin import InputItem, Refused, StorageProblem

from .body import Unwatched
from .client import BucketClient
from .looking import look
from .models import UploadBegun, UploadNotes, input_key
from .problems import AlreadyThere, Missing, NotOffered
from .threads import each
from .unfinished import INPUTS, Unfinished
from .uploading import ONE_PIECE_BYTES, SMALL_BYTES, Parts, send_whole

AT_ONCE = 16
"""Small ones wait for answers most of their time."""
PARTS_AT_ONCE = 4
"""And files that aren't small: bounds the memory."""


class Inputs:
    """``inputs/<sha256>`` of all buckets."""

    def __init__(self, unfinished: Unfinished) -> None:
        self._unfinished = unfinished
        self._busy: dict[tuple[str, str, str], asyncio.Lock] = {}
        self._slots = asyncio.Semaphore(PARTS_AT_ONCE)

    async def put_all(
        self,
        client: BucketClient,
        prefix: str,
        items: Iterable[InputItem],
        path_of: Callable[[InputItem], Path],
    ) -> None:
        """Make sure that all are there and whole. Raises: as ``put``."""
        contents = {item.sha256: item for item in items}
        known = await look(client, prefix, contents.values())
        puts = (
            self.put(client, prefix, item, path_of(item), absent=item.sha256 in known.absent)
            for item in contents.values()
            if item.sha256 not in known.there
        )
        await each(puts, AT_ONCE)

    async def put(
        self, client: BucketClient, prefix: str, item: InputItem, path: Path, *, absent: bool = False
    ) -> None:
        """Make sure that it is there and whole. ``absent``: it wasn't a moment ago.

        Raises: StorageProblem; Refused when the file isn't what it was when it was hashed.
        """
        key = input_key(prefix, item.sha256)
        async with self._alone(client, key):
            if not absent and await self._is_there(client, key, item):
                return
            try:
                await self._send(client, key, item, path, only_if_absent=True)
            except AlreadyThere:
                if not await self._is_there(client, key, item):
                    await self._send(client, key, item, path, only_if_absent=False)
            except NotOffered:  # stores that don't know If-None-Match
                await self._send(client, key, item, path, only_if_absent=False)

    @asynccontextmanager
    async def _alone(self, client: BucketClient, key: str) -> AsyncIterator[None]:
        """Runs that need the same content at the same time wait for the first of them."""
        place = (client.bucket.endpoint_url, client.bucket.name, key)
        lock = self._busy.setdefault(place, asyncio.Lock())
        async with lock:
            yield
        if not lock.locked() and self._busy.get(place) is lock:
            del self._busy[place]

    @staticmethod
    async def _is_there(client: BucketClient, key: str, item: InputItem) -> bool:
        try:
            answer = await client.call("head_object", key)
        except Missing:
            return False
        return bool(answer["ContentLength"] == item.size_bytes)

    async def _send(
        self, client: BucketClient, key: str, item: InputItem, path: Path, *, only_if_absent: bool
    ) -> None:
        if item.size_bytes < ONE_PIECE_BYTES:
            async with self._slots if item.size_bytes >= SMALL_BYTES else nullcontext():
                await client.threads.run(_send_small, client, key, item, path, only_if_absent)
            return
        memory = _Recorded(self._unfinished)
        parts = Parts(
            path=path,
            size_bytes=item.size_bytes,
            key=key,
            client=lambda: client,
            memory=memory,
            slots=self._slots,
            progress=Unwatched(),
            only_if_absent=only_if_absent,
            expected=item.sha256,
        )
        try:
            await parts.send(None)
        except BaseException:
            await memory.abort(client)
            raise
        await memory.forget()


def _send_small(client: BucketClient, key: str, item: InputItem, path: Path, only_if_absent: bool) -> None:
    """Blocking. What is in the bucket under a hash serves every later run, so nothing else may get there."""
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != item.sha256:
        raise Refused(f"{path} changed while the run was prepared; queue the run again")
    send_whole(client, key, data, Unwatched(), only_if_absent=only_if_absent)


class _Recorded:
    """The id of the upload in the database, so that a crash leaves nothing in the bucket for long."""

    def __init__(self, unfinished: Unfinished) -> None:
        self._unfinished = unfinished
        self._notes: UploadNotes | None = None

    async def begun(self, notes: UploadNotes) -> None:
        self._notes = notes
        begun = UploadBegun(key=notes.key, upload_id=notes.upload_id)
        await self._unfinished.add(INPUTS, notes.bucket, begun)

    async def changed(self, notes: UploadNotes) -> None:
        """Nothing to keep: the next try begins anew."""

    async def forget(self) -> None:
        if self._notes is not None:
            await self._unfinished.done(INPUTS, self._notes.key, self._notes.upload_id)

    async def abort(self, client: BucketClient) -> None:
        if self._notes is None:
            return
        with suppress(StorageProblem):
            await client.call("abort_multipart_upload", self._notes.key, UploadId=self._notes.upload_id)
            await self.forget()
