"""Fetches one input from the control plane's download routes, on from where an earlier try stopped."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from codefyui_core.plugin import Busy, ControlHttp, Corrupt, InputItem, Progress, Refused, RunId, Sha256

from .ahead import READ_BYTES, ended, through

if TYPE_CHECKING:
    import aiohttp

HELD_BYTES = 2 << 20
"""So much is written and hashed at once, while as much comes."""
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")


class Fetching:
    """One file; one honest try. What arrived stays in the file, whatever happens."""

    def __init__(self, http: ControlHttp, run: RunId, item: InputItem, progress: Progress) -> None:
        self._http = http
        self._run = run
        self._item = item
        self._progress = progress

    async def into(self, path: Path) -> Sha256:
        """The hash of the whole, taken on the way.

        Raises: Corrupt when the control plane's file is another one by now; StorageProblem, TransferStopped.
        """
        begun = await through(lambda: Begun(path))
        try:
            if begun.n_bytes > self._item.size_bytes:
                await through(begun.restart)
            if begun.n_bytes < self._item.size_bytes:
                await self._rest(begun)
            return Sha256(begun.digest.hexdigest())
        finally:
            if begun.is_open:
                await through(begun.close)

    async def _rest(self, begun: "Begun") -> None:
        item = self._item
        # Not compressed on the way: sizes and ranges are those of the file.
        headers = {"Accept-Encoding": "identity"}
        if begun.n_bytes:
            headers["Range"] = f"bytes={begun.n_bytes}-"
        async with self._http.request("GET", self._path(), headers=headers) as response:
            start, size = _span(response)
            if size is not None and size != item.size_bytes:
                raise Corrupt(
                    f"{item.name} was changed on the server since the run got it: it has {size} bytes now, "
                    f"not {item.size_bytes}"
                )
            if start != begun.n_bytes:
                await through(begun.restart)
            await self._keep_all(pieces_of(response), begun)
        if begun.n_bytes < item.size_bytes:
            raise Busy(f"{item.name} broke off after {begun.n_bytes} of {item.size_bytes} bytes")

    def _path(self) -> str:
        """An upload has its own route, what an earlier run left comes by its hash."""
        item = self._item
        if item.place is not None:
            return f"/api/runs/{self._run}/inputs/{item.sha256}"
        return f"/api/{item.family.value}/download/{quote(item.name)}"

    async def _keep_all(self, pieces: AsyncIterator[bytes], begun: "Begun") -> None:
        """Two threads write and hash what came while more of it comes."""
        held: list[bytes] = []
        n_held, n_come = 0, begun.n_bytes
        keeping: asyncio.Task[None] | None = None
        try:
            async for piece in pieces:
                held.append(piece)
                n_held += len(piece)
                n_come += len(piece)
                self._check(n_come)
                self._progress.advance(len(piece))
                if n_held < HELD_BYTES:
                    continue
                if keeping is not None:
                    await asyncio.shield(keeping)
                keeping = asyncio.ensure_future(begun.keep(held))
                held, n_held = [], 0
            if keeping is not None:
                await asyncio.shield(keeping)
        finally:
            if await _went_well(keeping) and n_come <= self._item.size_bytes:
                await through(lambda: begun.end(held))

    def _check(self, n_bytes: int) -> None:
        if n_bytes > self._item.size_bytes:
            raise Corrupt(f"{self._item.name} came with more than its {self._item.size_bytes} bytes")


class Begun:
    """The beginning of the file, and its hash. All but ``keep`` blocks."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file: FileIO = path.open("r+b", buffering=0)
        self.digest = hashlib.sha256()
        self.n_bytes = 0
        while data := self._file.read(READ_BYTES):
            self.digest.update(data)
            self.n_bytes += len(data)

    def restart(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self.digest, self.n_bytes = hashlib.sha256(), 0

    async def keep(self, pieces: Sequence[bytes]) -> None:
        """Writing takes half as long as hashing, and neither waits for the other. Not to be cancelled.

        Raises: Refused when the disk doesn't take it.
        """
        both = [asyncio.to_thread(work, pieces) for work in (self.write, self.hash)]
        for error in await asyncio.gather(*both, return_exceptions=True):
            if error is not None:
                raise error

    def write(self, pieces: Sequence[bytes]) -> None:
        for piece in pieces:
            write_all(self._file, memoryview(piece))

    def hash(self, pieces: Sequence[bytes]) -> None:
        for piece in pieces:
            self.digest.update(piece)
            self.n_bytes += len(piece)

    def end(self, pieces: Sequence[bytes]) -> None:
        self.write(pieces)
        self.hash(pieces)
        self.close()

    @property
    def is_open(self) -> bool:
        return not self._file.closed

    def close(self) -> None:
        self._file.close()


async def pieces_of(response: "aiohttp.ClientResponse") -> AsyncIterator[bytes]:
    """The body as it is received: what is joined is copied."""
    async for piece, _ in response.content.iter_chunks():
        yield piece


def write_all(file: FileIO, data: memoryview) -> None:
    """Raises: Refused when the disk doesn't take it."""
    try:
        while data:
            data = data[file.write(data) :]
    except OSError as error:
        raise unwritten(file.name, error) from error


def unwritten(name: object, error: OSError) -> Refused:
    return Refused(f"{name} can't be written: {error.strerror}", code="storage.full")


async def _went_well(keeping: "asyncio.Task[None] | None") -> bool:
    """Waits for the threads. What comes behind a piece that it couldn't write has no place."""
    if keeping is None:
        return True
    await ended(keeping)
    return keeping.exception() is None


def _span(response: "aiohttp.ClientResponse") -> tuple[int, int | None]:
    """First byte, and the size of the whole file where the answer says it."""
    found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if response.status == 206 and found:
        return int(found[1]), int(found[2])
    return 0, response.content_length
