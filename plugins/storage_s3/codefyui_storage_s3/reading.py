"""A person's download through the control plane."""

import hashlib
from collections.abc import AsyncIterator
from typing import Any

from codefyui_core.plugin import Corrupt, StoredObject, Stream

from .client import BucketClient
from .problems import problem_of

_CHUNK_BYTES = 1 << 20


async def stream(client: BucketClient, stored: StoredObject, span: tuple[int, int | None] | None) -> Stream:
    """The object's bytes, or those of ``span`` (first, and one past the last).

    Raises: StorageProblem; while it is read, Corrupt at the end of a whole object with another hash.
    """
    wanted = {} if span is None else {"Range": f"bytes={span[0]}-{'' if span[1] is None else span[1] - 1}"}
    if span is not None and stored.size_bytes is not None and span[0] >= stored.size_bytes:
        return Stream(size_bytes=0, chunks=_nothing())  # the core answers 416
    answer = await client.call("get_object", stored.relative_path, **wanted)
    digest = hashlib.sha256() if span is None and stored.sha256 is not None else None
    return Stream(size_bytes=answer["ContentLength"], chunks=_chunks(client, stored, answer["Body"], digest))


async def _nothing() -> AsyncIterator[bytes]:
    for _ in ():
        yield b""


async def _chunks(
    client: BucketClient, stored: StoredObject, body: Any, digest: "hashlib._Hash | None"
) -> AsyncIterator[bytes]:
    def read() -> bytes:
        try:
            chunk: bytes = body.read(_CHUNK_BYTES)
        except Exception as error:
            problem = problem_of(error, client.circumstances("get_object", stored.relative_path))
            if problem is None:
                raise
            raise problem from None
        if digest is not None:
            digest.update(chunk)
        return chunk

    try:
        while chunk := await client.threads.run(read):
            yield chunk
        if digest is not None and digest.hexdigest() != stored.sha256:
            raise Corrupt(f"{stored.relative_path} has other bytes in the bucket than its run wrote")
    finally:
        body.close()
