"""Sends one output: piece by piece, on from where the control plane has it, hashed on the way."""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path

from pydantic import ValidationError

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

from .ahead import HashedFile, through
from .models import KIB, UPLOAD_PATH, Uploaded

LEAST_PIECE_BYTES = 512 * KIB
"""Fits through proxies that take 1 MB, as many do unless told otherwise."""
MOVED = frozenset({"upload.offset", "upload.exists"})
"""The control plane has more or less of the file than the last answer said."""


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
            return Receipt(sha256=await self._large(HashedFile(file, size), size), size_bytes=size)
        except OSError as error:
            raise unreadable(path, error) from error
        finally:
            await through(file.close)

    async def _large(self, hashed: HashedFile, size_bytes: int) -> Sha256:
        offset = await self._ask()
        moved = 0
        while offset < size_bytes:
            n_bytes = min(self._pieces.n_bytes, size_bytes - offset)
            try:
                offset = await self._part(hashed, offset, n_bytes)
                self._pieces.went(n_bytes)
            except Refused as error:
                if error.code == "proxy.413":
                    self._pieces.shrink(n_bytes, error)
                    continue
                moved += 1
                if error.code not in MOVED or moved > 3:
                    raise
                offset = await self._ask()
        sha256 = await hashed.sha256()
        await self._post(size_bytes, 0, b"", {"size": str(size_bytes), "sha256": sha256})
        return sha256

    # ------------------------------------------------------------ requests

    async def _ask(self) -> int:
        async with self._http.request("GET", self._path, params=self._params({})) as response:
            return _said(await response.read()).offset

    async def _part(self, hashed: HashedFile, offset: int, n_bytes: int) -> int:
        """The new offset."""
        self._failed = None
        async with aclosing(hashed.part(offset, n_bytes)) as part:
            try:
                return (await self._post(offset, n_bytes, self._told(part), {})).offset
            except Busy:
                self._pieces.broke()
                if self._failed is not None:
                    raise self._failed from None
                raise

    async def _told(self, part: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """What ends the reading ends the request, as a broken line would; kept, to be told apart from one."""
        try:
            async for data in part:
                yield data
                self._progress.advance(len(data))
        except (CodefyError, OSError) as error:
            self._failed = error
            raise

    async def _post(
        self, offset: int, n_bytes: int, body: bytes | AsyncIterator[bytes], more: Mapping[str, str]
    ) -> Uploaded:
        """Raises: Corrupt when the control plane got other bytes than were sent (it has dropped them); Busy while
        its disk is full, too.
        """
        params = self._params({"offset": str(offset), **more})
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(n_bytes)}
        try:
            async with self._http.request(
                "POST", self._path, headers=headers, params=params, data=body
            ) as response:
                return _said(await response.read())
        except Refused as error:
            if error.code == "upload.mismatch":
                raise Corrupt(error.message, code=error.code) from error
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


def _said(answer: bytes) -> Uploaded:
    """Raises: Busy for an answer that was damaged on its way."""
    try:
        return Uploaded.model_validate_json(answer)
    except ValidationError as error:
        raise Busy("the answer of the control plane can't be read; the line may have damaged it") from error
