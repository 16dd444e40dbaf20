"""A file that is read and hashed by threads while what was read before is under way."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable
from io import FileIO
from typing import TypeVar

from codefyui_core.plugin import Refused, Sha256

T = TypeVar("T")
READ_BYTES = 1 << 20


async def through(work: Callable[[], T]) -> T:
    """In a thread, and to its end also when the transfer is cut meanwhile: the file isn't closed under it."""
    doing = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait({doing})
        raise


class HashedFile:
    """Any part of a file may be read, any part again; each byte is hashed once, in order."""

    def __init__(self, file: FileIO, size_bytes: int) -> None:
        self._file = file
        self._size_bytes = size_bytes
        self._digest = hashlib.sha256()
        self._hashed = 0

    async def part(self, start: int, n_bytes: int) -> AsyncGenerator[bytes]:
        """The bytes from ``start`` on, each piece read while the one before is used.

        Raises: Refused when the file has become shorter.
        """
        await through(lambda: self._hash_until(start))
        end = start + n_bytes
        ahead = asyncio.ensure_future(asyncio.to_thread(self._read, start, end))
        try:
            while start < end:
                data = await asyncio.shield(ahead)
                start += len(data)
                ahead = asyncio.ensure_future(asyncio.to_thread(self._read, start, end))
                yield data
        finally:
            await asyncio.wait({ahead})
            ahead.exception()

    async def sha256(self) -> Sha256:
        """Of the whole file."""
        await through(lambda: self._hash_until(self._size_bytes))
        return Sha256(self._digest.hexdigest())

    def _hash_until(self, end: int) -> None:
        while self._hashed < end:
            self._read(self._hashed, end)

    def _read(self, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        self._file.seek(start)
        data = self._file.read(min(READ_BYTES, end - start))
        if not data:
            raise Refused(f"{self._file.name} became shorter while it was sent")
        if start <= self._hashed < start + len(data):
            self._digest.update(memoryview(data)[self._hashed - start :])
            self._hashed = start + len(data)
        return data
