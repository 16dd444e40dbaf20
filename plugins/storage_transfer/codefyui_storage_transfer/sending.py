"""Sends one output: piece by piece, on from where the control plane has it, checked on the way."""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from io import FileIO
from pathlib import Path

from codefyui_core.plugin import (
    AttemptView,
    Busy,
    CodefyError,
    ControlHttp,
    Corrupt,
    Output,
    Progress,
    Receipt,
    Refused,
    Sha256,
)

from .ahead import blocks, sha256_of_file, through
from .answers import said
from .blocks import BLOCK_BYTES, body_bytes, content_bytes
from .models import KIB, UPLOAD_PATH, Uploaded

LEAST_PIECE_BYTES = 512 * KIB
"""Fits through proxies that take 1 MB, as many do unless told otherwise."""
AGAIN = frozenset({"upload.offset", "upload.exists", "upload.mismatch", "upload.needs_hash"})
"""The control plane has more or less of the file than the last answer said."""
REPEATS = 3
"""How often a piece goes again without one byte more arriving."""


GROWTH = 8
"""How much larger a piece gets than the first one."""


class Pieces:
    """How much goes with one request: more while the line holds, as each request waits for its answer, which is far
    away on some lines; less once a proxy has refused a request for its size.
    """

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = self._first = n_bytes
        self._most = n_bytes * GROWTH

    def went(self, n_bytes: int) -> None:
        """So many were taken at once."""
        if n_bytes >= self.n_bytes:
            self.n_bytes = min(2 * n_bytes, self._most)

    def broke(self) -> None:
        """The line: what is stored on the way, in a proxy, is lost with it."""
        self.n_bytes = min(self.n_bytes, self._first)

    def shrink(self, refused_bytes: int, error: Refused) -> None:
        """Raises: Refused, naming the proxy, when the smallest piece was refused."""
        if refused_bytes <= LEAST_PIECE_BYTES:
            raise Refused(
                f"a proxy in front of the server refused {refused_bytes} bytes as too large (413, and it wasn't the "
                "server that answered); raise the proxy's own limit of request bodies (client_max_body_size in nginx)",
                code=error.code,
            ) from error
        fits = self._first if refused_bytes > self._first else LEAST_PIECE_BYTES
        self.n_bytes = self._most = min(self._most, fits)


class Sending:
    """One file of one attempt; one honest try."""

    def __init__(
        self, http: ControlHttp, attempt: AttemptView, output: Output, pieces: Pieces, progress: Progress
    ) -> None:
        self._http = http
        self._path = UPLOAD_PATH.format(run_id=attempt.run_id)
        self._output = output
        self._pieces = pieces
        self._progress = progress
        self._failed: BaseException | None = None
        self._offset = self._furthest = self._repeats = 0
        self._is_checked = True
        """All of it went in this try, each block with its checksum."""

    async def file(self, path: Path, limit_bytes: int) -> Receipt:
        """The control plane has it whole when this returns.

        Raises: StorageProblem, TransferStopped.
        """
        try:
            file = await through(lambda: path.open("rb", buffering=0))
        except OSError as error:
            raise unreadable(path, error) from error
        try:
            size = await through(lambda: file.seek(0, 2))
            if size > limit_bytes:
                raise too_large(self._output, size, limit_bytes)
            return Receipt(sha256=await self._large(file, size), size_bytes=size)
        except OSError as error:
            raise unreadable(path, error) from error
        finally:
            await through(file.close)

    async def _large(self, file: FileIO, size_bytes: int) -> Sha256:
        """Its hash: that of the control plane when each byte was checked on its way. What came in a try before may be
        what the file was then, so that the whole is hashed here, too.
        """
        self._offset = await self._ask()
        self._is_checked = not self._offset
        while self._offset < size_bytes:
            length = min(self._pieces.n_bytes, body_bytes(size_bytes - self._offset, BLOCK_BYTES))
            try:
                found = await self._part(file, length, size_bytes)
            except Refused as error:
                await self._repeat(length, error)
                continue
            if found.placed and found.sha256 is not None:
                return found.sha256
            self._pieces.went(length)
            self._goes_on(found.offset)
        sha256 = await sha256_of_file(file, size_bytes)
        try:
            await self._post(size_bytes, 0, b"", {"size": str(size_bytes), "sha256": sha256})
        except Refused as error:
            raise _corrupt(error) from error
        return sha256

    async def _repeat(self, length: int, error: Refused) -> None:
        """Find out where the file goes on. Raises: Refused, Corrupt when it doesn't."""
        if error.code == "proxy.413":
            self._pieces.shrink(length, error)
            return
        self._repeats += 1
        if error.code not in AGAIN or self._repeats > REPEATS:
            raise _corrupt(error) from error
        offset = await self._ask()
        if error.code != "upload.mismatch" or offset < self._offset:
            self._is_checked = False
        self._goes_on(offset)

    def _goes_on(self, offset: int) -> None:
        if offset > self._furthest:
            self._furthest, self._repeats = offset, 0
        self._offset = offset

    # ------------------------------------------------------------ requests

    async def _ask(self) -> int:
        async with self._http.request("GET", self._path, params=self._params({})) as response:
            return (await said(response)).offset

    async def _part(self, file: FileIO, length: int, size_bytes: int) -> Uploaded:
        """A body of this length; with the last one, the file is whole when nothing else has to show that."""
        self._failed = None
        more = {"block_bytes": str(BLOCK_BYTES)}
        if self._is_checked:
            more["size"] = str(size_bytes)
        n_bytes = content_bytes(length, BLOCK_BYTES)
        async with aclosing(blocks(file, self._offset, n_bytes)) as part:
            try:
                return await self._post(self._offset, length, self._told(part), more)
            except Busy:
                self._pieces.broke()
                if self._failed is not None:
                    raise self._failed from None
                raise

    async def _told(self, part: AsyncIterator[tuple[bytes, bytes]]) -> AsyncIterator[bytes]:
        """What ends the reading ends the request, as a broken line would; kept, to be told apart from one."""
        try:
            async for head, block in part:
                yield head
                yield block
                self._progress.advance(len(block))
        except (CodefyError, OSError) as error:
            self._failed = error
            raise

    async def _post(
        self, offset: int, length: int, body: bytes | AsyncIterator[bytes], more: Mapping[str, str]
    ) -> Uploaded:
        """Raises: Busy while its disk is full, too."""
        params = self._params({"offset": str(offset), **more})
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(length)}
        try:
            async with self._http.request(
                "POST", self._path, headers=headers, params=params, data=body
            ) as response:
                return await said(response)
        except Refused as error:
            if error.code == "storage.full":
                raise Busy(error.message, code=error.code) from error
            raise

    def _params(self, more: Mapping[str, str]) -> dict[str, str]:
        output = self._output
        return {
            "key": output.key,
            "kind": output.kind,
            "name": output.name,
            "relative_path": output.relative_path,
            **more,
        }


def too_large(output: Output, size_bytes: int, limit_bytes: int) -> Refused:
    return Refused(
        f"{output.name} has {size_bytes} bytes, over the server's limit of {limit_bytes} "
        "(CODEFYUI_MAX_UPLOAD_SIZE)",
        code="request.too_large",
    )


def unreadable(path: Path, error: OSError) -> Refused:
    return Refused(f"{path} can't be read: {error.strerror}", code="artifact.not_found")


def _corrupt(error: Refused) -> Refused | Corrupt:
    """Corrupt when the control plane got other bytes than were sent, and has dropped them."""
    return Corrupt(error.message, code=error.code) if error.code == "upload.mismatch" else error
