"""Sends small outputs together: many with one request, read and hashed by one thread."""

import hashlib
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from io import FileIO
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

from .ahead import through
from .models import (
    KIB,
    MANIFEST_BYTES,
    MIB,
    PARCEL_FILES,
    PARCEL_PATH,
    Announced,
    Failed,
    Manifest,
    ParcelAnswer,
    Uploaded,
)
from .sending import Pieces, too_large, unreadable
from .together import Together

SMALL_BYTES = MIB
"""Up to here a file goes together with others."""
LOADS = 2
"""Under way at once: one is read while the one before is sent."""
LOAD_BYTES = 8 * MIB
PIECE_BYTES = 64 * KIB
"""Files that are smaller go into the socket together."""
DAMAGED = frozenset({"request.invalid", "upload.mismatch"})
"""What is said of a first line that isn't what was sent: the line did that, so it is sent again."""
EMPTY = Sha256(hashlib.sha256().hexdigest())


@dataclass(slots=True, kw_only=True, eq=False)
class Leaving:
    """One file on its way. ``problem``: why it doesn't go, or what became of it."""

    output: Output
    path: Path
    progress: Progress
    data: bytes = b""
    sha256: Sha256 = EMPTY
    is_small: bool = True
    problem: CodefyError | None = None

    @property
    def goes(self) -> bool:
        return self.is_small and self.problem is None

    def announced(self) -> Announced:
        return Announced.model_construct(
            kind=self.output.kind,
            name=self.output.name,
            relative_path=self.output.relative_path,
            key=self.output.key,
            size=len(self.data),
            sha256=self.sha256,
        )

    def went(self) -> None:
        """Its bytes; that it is to be stopped is its own affair."""
        try:
            self.progress.advance(len(self.data))
        except CodefyError as error:
            self.problem = error

    def said(self, found: Uploaded | Failed) -> Receipt | CodefyError:
        if self.problem is not None:
            return self.problem
        if isinstance(found, Uploaded):
            return Receipt(sha256=self.sha256, size_bytes=len(self.data))
        if found.code == "storage.full":
            return Busy(found.detail, code=found.code)
        refused = Corrupt if found.code == "upload.mismatch" else Refused
        return refused(found.detail, code=found.code)


class SmallOutputs:
    """Of one attempt."""

    def __init__(self, http: ControlHttp, attempt: AttemptView, pieces: Pieces, limit_bytes: int) -> None:
        self._http = http
        self._path = PARCEL_PATH.format(run_id=attempt.run_id)
        self._pieces = pieces
        self._limit_bytes = limit_bytes
        self._together: Together[Leaving, Receipt | None] = Together(
            self._load, at_once=LOADS, most_items=PARCEL_FILES, most_bytes=self._most_bytes
        )

    async def send(self, output: Output, path: Path, progress: Progress) -> Receipt | None:
        """The control plane has it whole when this returns. None for a file that has to go in pieces.

        Raises: StorageProblem; TransferStopped, for this one alone.
        """
        size = output.size_bytes
        if size is None:
            try:
                size = await through(lambda: path.stat().st_size)
            except OSError as error:
                raise unreadable(path, error) from error
        if size > self._small_bytes():
            return None
        return await self._together.one(Leaving(output=output, path=path, progress=progress), size)

    async def aclose(self) -> None:
        await self._together.aclose()

    def _small_bytes(self) -> int:
        return min(SMALL_BYTES, self._pieces.n_bytes)

    def _most_bytes(self) -> int:
        return min(LOAD_BYTES, self._pieces.n_bytes)

    # ------------------------------------------------------------ a load

    async def _load(self, load: Sequence[Leaving]) -> Sequence[Receipt | CodefyError | None]:
        await through(lambda: _read_all(load, self._small_bytes(), self._limit_bytes))
        going = [one for one in load if one.goes]
        receipts = dict(zip(map(id, going), await self._parcels(going), strict=True))
        return [one.problem or receipts.get(id(one)) for one in load]

    async def _parcels(self, going: Sequence[Leaving]) -> Sequence[Receipt | CodefyError | None]:
        """One request, or more when one would be too large."""
        if not going:
            return []
        head = Manifest.model_construct(files=[one.announced() for one in going]).model_dump_json().encode()
        if len(going) > 1 and (len(head) >= MANIFEST_BYTES or _n_bytes(going) > self._most_bytes()):
            return await self._halves(going)
        try:
            return await self._post(head + b"\n", going)
        except Refused as error:
            if error.code in DAMAGED:
                raise Corrupt(error.message, code=error.code) from error
            if error.code != "proxy.413":
                raise
            self._pieces.shrink(_n_bytes(going), error)
            return await self._halves(going) if len(going) > 1 else [None]

    async def _halves(self, going: Sequence[Leaving]) -> Sequence[Receipt | CodefyError | None]:
        middle = len(going) // 2
        return [*await self._parcels(going[:middle]), *await self._parcels(going[middle:])]

    async def _post(self, head: bytes, going: Sequence[Leaving]) -> Sequence[Receipt | CodefyError]:
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(len(head) + _n_bytes(going)),
        }
        try:
            async with self._http.request(
                "POST",
                self._path,
                headers=headers,
                params={"sha256": hashlib.sha256(head).hexdigest()},
                data=_body(head, going),
            ) as response:
                found = _answer(await response.read())
        except Busy:
            if all(one.problem for one in going):
                return [one.problem for one in going if one.problem]
            raise
        if len(found.files) != len(going):
            raise Busy("the control plane answered for other files than it was sent")
        return [one.said(said) for one, said in zip(going, found.files, strict=True)]


async def _body(head: bytes, going: Sequence[Leaving]) -> AsyncIterator[bytes]:
    """Raises: TransferStopped when nobody wants any of it any more."""
    held, n_held = [head], len(head)
    for one in going:
        held.append(one.data)
        n_held += len(one.data)
        one.went()
        if n_held >= PIECE_BYTES:
            yield b"".join(held)
            held, n_held = [], 0
        if one.problem is not None and not any(each.goes for each in going):
            raise one.problem
    yield b"".join(held)


def _answer(body: bytes) -> ParcelAnswer:
    """Raises: Busy for one that was damaged on its way."""
    try:
        return ParcelAnswer.model_validate_json(body)
    except ValidationError as error:
        raise Busy("the answer of the control plane can't be read; the line may have damaged it") from error


def _n_bytes(going: Sequence[Leaving]) -> int:
    return sum(len(one.data) for one in going)


# ---------------------------------------------------------------- reading; all of it blocks


def _read_all(load: Sequence[Leaving], small_bytes: int, limit_bytes: int) -> None:
    for one in load:
        try:
            with FileIO(one.path) as file:
                _read(one, file, small_bytes, limit_bytes)
        except OSError as error:
            one.problem = unreadable(one.path, error)


def _read(one: Leaving, file: FileIO, small_bytes: int, limit_bytes: int) -> None:
    size = os.fstat(file.fileno()).st_size
    if size > limit_bytes:
        one.problem = too_large(one.output, size, limit_bytes)
        return
    one.is_small = size <= small_bytes
    if one.is_small:
        one.data = file.read(size)
        one.sha256 = Sha256(hashlib.sha256(one.data).hexdigest())
