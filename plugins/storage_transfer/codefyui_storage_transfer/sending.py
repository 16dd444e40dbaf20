"""Sends one output: piece by piece, on from where the control plane has it, hashed on the way."""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from codefyui_core.plugin import (
    AttemptView,
    Busy,
    CodefyError,
    ControlHttp,
    Corrupt,
    Output,
    Progress,
    Refused,
    Sha256,
)

from .ahead import HashedFile, through
from .models import KIB, MIB, UPLOAD_PATH, Uploaded

SMALL_BYTES = MIB
"""Up to here a file is read and hashed first, and sent whole with one request."""
LEAST_PIECE_BYTES = 512 * KIB
"""Fits through proxies that take 1 MB, as many do unless told otherwise."""
MOVED = frozenset({"upload.offset", "upload.exists"})
"""The control plane has more or less of the file than the last answer said."""


@dataclass(slots=True)
class Pieces:
    """How much goes with one request; less once a proxy has refused a request for its size."""

    n_bytes: int

    def shrink(self, refused_bytes: int, error: Refused) -> None:
        """Raises: Refused, naming the proxy, when a smaller piece was refused, too."""
        if refused_bytes <= LEAST_PIECE_BYTES:
            raise Refused(
                f"a proxy in front of the server refused {refused_bytes} bytes as too large (413, and it wasn't the "
                "server that answered); raise the proxy's own limit of request bodies (client_max_body_size in nginx)",
                code=error.code,
            ) from error
        self.n_bytes = min(self.n_bytes, LEAST_PIECE_BYTES)


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

    async def file(self, path: Path, size_bytes: int) -> Sha256:
        """Its hash, once the control plane has it whole.

        Raises: StorageProblem, TransferStopped.
        """
        try:
            file = await through(lambda: path.open("rb", buffering=0))
        except OSError as error:
            raise _unreadable(path, error) from error
        try:
            hashed = HashedFile(file, size_bytes)
            if size_bytes > min(SMALL_BYTES, self._pieces.n_bytes):
                return await self._large(hashed, size_bytes)
            return await self._small(hashed, size_bytes)
        except OSError as error:
            raise _unreadable(path, error) from error
        finally:
            await through(file.close)

    # ------------------------------------------------------------ ways

    async def _small(self, hashed: HashedFile, size_bytes: int) -> Sha256:
        """One request; where it turns out that a part is there already, as a large one."""
        sha256 = await hashed.sha256()
        try:
            await self._post(hashed, 0, size_bytes, {"size": str(size_bytes), "sha256": sha256})
        except Refused as error:
            if error.code == "proxy.413":
                self._pieces.shrink(size_bytes, error)
            elif error.code not in MOVED:
                raise
            return await self._large(hashed, size_bytes)
        return sha256

    async def _large(self, hashed: HashedFile, size_bytes: int) -> Sha256:
        offset = await self._ask()
        moved = 0
        while offset < size_bytes:
            n_bytes = min(self._pieces.n_bytes, size_bytes - offset)
            try:
                offset = (await self._post(hashed, offset, n_bytes, {})).offset
            except Refused as error:
                if error.code == "proxy.413":
                    self._pieces.shrink(n_bytes, error)
                    continue
                moved += 1
                if error.code not in MOVED or moved > 3:
                    raise
                offset = await self._ask()
        sha256 = await hashed.sha256()
        await self._post(hashed, size_bytes, 0, {"size": str(size_bytes), "sha256": sha256})
        return sha256

    # ------------------------------------------------------------ requests

    async def _ask(self) -> int:
        async with self._http.request("GET", self._path, params=self._params({})) as response:
            return Uploaded.model_validate_json(await response.read()).offset

    async def _post(self, hashed: HashedFile, offset: int, n_bytes: int, more: Mapping[str, str]) -> Uploaded:
        """Raises: Corrupt when the control plane got other bytes than were sent; it has dropped them."""
        params = self._params({"offset": str(offset), **more})
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(n_bytes)}
        self._failed = None
        try:
            async with aclosing(hashed.part(offset, n_bytes)) as part:
                body = self._told(part) if n_bytes else b""
                async with self._http.request(
                    "POST", self._path, headers=headers, params=params, data=body
                ) as response:
                    return Uploaded.model_validate_json(await response.read())
        except Busy:
            if self._failed is not None:
                raise self._failed from None
            raise
        except Refused as error:
            if error.code == "upload.mismatch":
                raise Corrupt(error.message, code=error.code) from error
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

    def _params(self, more: Mapping[str, str]) -> dict[str, str]:
        output = self._output
        return {
            "key": output.key,
            "kind": output.kind,
            "name": output.name,
            "relative_path": output.relative_path,
            **more,
        }


def _unreadable(path: Path, error: OSError) -> Refused:
    return Refused(f"{path} can't be read: {error.strerror}", code="artifact.not_found")
