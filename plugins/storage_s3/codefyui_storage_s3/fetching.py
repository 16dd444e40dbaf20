"""Fetches an object to a file: in ranges beside each other, written and hashed in order, so that a later try goes on where
the file ends.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from codefyui_core.plugin import Corrupt, Progress, Sha256

from .client import BucketClient
from .problems import problem_of
from .threads import Threads

RANGE_BYTES = 8 << 20
AT_ONCE = 4
"""Ranges of one file in memory."""
_CHUNK_BYTES = 256 << 10

Chunks = Sequence[bytes]


class Fetch:
    """One file."""

    def __init__(
        self, *, key: str, size_bytes: int, into: Path, client: Callable[[], BucketClient], progress: Progress
    ) -> None:
        self._key = key
        self._size = size_bytes
        self._into = into
        self._client = client
        self._progress = progress
        self._digest = hashlib.sha256()

    async def run(self) -> Sha256:
        """The hash of the whole.

        Raises: StorageProblem; Corrupt when there is more than there should be.
        """
        threads = self._client().threads
        if self._size <= RANGE_BYTES:
            await threads.run(self._small)
        else:
            await self._in_ranges(threads, await threads.run(self._take_in))
        return Sha256(self._digest.hexdigest())

    def _small(self) -> None:
        """In one turn of a thread."""
        offset = self._take_in()
        if offset < self._size:
            self._append(self._range(offset, self._size))

    async def _in_ranges(self, threads: Threads, offset: int) -> None:
        coming: deque[asyncio.Task[Chunks]] = deque()

        def ask() -> None:
            nonlocal offset
            while offset < self._size and len(coming) < AT_ONCE:
                last = min(offset + RANGE_BYTES, self._size)
                coming.append(asyncio.create_task(threads.run(self._range, offset, last)))
                offset = last

        try:
            ask()
            while coming:
                data = await coming[0]
                coming.popleft()
                ask()
                await threads.run(self._append, data)
        finally:
            for task in coming:
                task.cancel()
            await asyncio.gather(*coming, return_exceptions=True)

    def _take_in(self) -> int:
        """Hash what an earlier try left; its length. Raises: Corrupt when it is too long."""
        size = 0
        with self._into.open("ab+") as file:
            file.seek(0)
            while chunk := file.read(_CHUNK_BYTES):
                self._digest.update(chunk)
                size += len(chunk)
        if size > self._size:
            raise Corrupt(f"{self._into} holds more than the {self._size} bytes of {self._key}")
        if size:
            self._progress.advance(size)
        return size

    def _range(self, first: int, past: int) -> Chunks:
        client = self._client()
        answer = client.ask("get_object", self._key, Range=f"bytes={first}-{past - 1}")
        return body_of(client, self._key, answer, past - first, self._progress)

    def _append(self, chunks: Chunks) -> None:
        with self._into.open("ab") as file:
            for chunk in chunks:
                file.write(chunk)
                self._digest.update(chunk)


def body_of(
    client: BucketClient, key: str, answer: dict[str, Any], size_bytes: int, progress: Progress
) -> Chunks:
    """The bytes of an answer, in the pieces that they came in, as joining them costs a copy. Blocking.

    Raises: Corrupt when they are not as many as asked for; Busy when the line breaks.
    """
    if answer["ContentLength"] != size_bytes:
        answer["Body"].close()
        raise Corrupt(f"{key}: the bucket gives {answer['ContentLength']} bytes for {size_bytes}")
    chunks: list[bytes] = []
    try:
        while chunk := answer["Body"].read(_CHUNK_BYTES):
            chunks.append(chunk)
            progress.advance(len(chunk))
    except Exception as error:
        problem = problem_of(error, client.circumstances("get_object", key))
        if problem is None:
            raise
        raise problem from None
    finally:
        answer["Body"].close()
    return chunks
