"""A file that is read in a thread while what was read before is under way."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable
from functools import partial
from io import FileIO
from typing import Any, TypeVar

from codefyui_core.plugin import Refused, Sha256

from .blocks import BLOCK_BYTES, head_of
from .models import MIB

T = TypeVar("T")
READ_BYTES = MIB
HASH_BYTES = 64 * MIB
"""By a thread at once, so that whoever stops the transfer waits for no more."""


async def through(work: Callable[[], T]) -> T:
    """In a thread, and to its end also when the transfer is cut meanwhile: the file isn't closed under it."""
    doing = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await ended(doing)
        raise


async def ended(doing: "asyncio.Future[Any]") -> None:
    """Its thread is done, however often whoever waits is cancelled meanwhile; what it raised isn't asked for."""
    cancelled: asyncio.CancelledError | None = None
    while not doing.done():
        try:
            await asyncio.wait({doing})
        except asyncio.CancelledError as error:
            cancelled = error
    doing.exception()
    if cancelled is not None:
        raise cancelled


async def blocks(file: FileIO, start: int, n_bytes: int) -> AsyncGenerator[tuple[bytes, bytes]]:
    """The heads and blocks of a part of a file, each read while the one before is used.

    Raises: Refused when the file has become shorter.
    """
    end = start + n_bytes

    def begun() -> asyncio.Task[tuple[bytes, bytes]]:
        return asyncio.create_task(asyncio.to_thread(_block, file, start, end))

    ahead = begun() if start < end else None
    try:
        while ahead is not None:
            head, block = await asyncio.shield(ahead)
            start += len(block)
            ahead = begun() if start < end else None
            yield head, block
    finally:
        if ahead is not None:
            await ended(ahead)


def _block(file: FileIO, start: int, end: int) -> tuple[bytes, bytes]:
    block = _read(file, start, min(BLOCK_BYTES, end - start))
    return head_of(block), block


async def sha256_of_file(file: FileIO, size_bytes: int) -> Sha256:
    """Raises: Refused when the file has become shorter."""
    digest = hashlib.sha256()

    def hash_until(start: int, end: int) -> None:
        while start < end:
            digest.update(_read(file, start, min(READ_BYTES, end - start)))
            start += READ_BYTES

    for start in range(0, size_bytes, HASH_BYTES):
        await through(partial(hash_until, start, min(start + HASH_BYTES, size_bytes)))
    return Sha256(digest.hexdigest())


def _read(file: FileIO, start: int, n_bytes: int) -> bytes:
    file.seek(start)
    data = file.read(n_bytes)
    while len(data) < n_bytes:
        more = file.read(n_bytes - len(data))
        if not more:
            raise Refused(f"{file.name} became shorter while it was sent")
        data += more
    return data
