"""Fetches small inputs together: many with one request, written and hashed by a thread."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from pydantic import ValidationError

from codefyui_core.plugin import (
    Busy,
    CodefyError,
    ControlHttp,
    Corrupt,
    InputItem,
    JsonObject,
    Progress,
    Refused,
    RunId,
    Sha256,
)

from .ahead import ended, through
from .fetching import HELD_BYTES, pieces_of, unwritten, write_all
from .input_parcel import FILE_BYTES, INPUTS_PATH, MOST_FILES, Listed, Manifest
from .models import KIB, MIB
from .together import Together

LOADS = 2
"""Under way at once: one is written while the next one is asked for."""
LOAD_BYTES = 8 * MIB
MANIFEST_BYTES = 256 * KIB


@dataclass(slots=True, eq=False)
class Wanted:
    """One file that somebody waits for."""

    item: InputItem
    path: Path
    progress: Progress
    given_up: bool = False
    answer: "Sha256 | Exception | None" = None
    """None: it didn't come whole."""


class SmallInputs:
    """Of one attempt."""

    def __init__(self, http: ControlHttp, run: RunId) -> None:
        self._http = http
        self._path = INPUTS_PATH.format(run_id=run)
        self._together: Together[Wanted, Sha256 | None] = Together(
            self._load, at_once=LOADS, most_items=MOST_FILES, most_bytes=lambda: LOAD_BYTES
        )

    async def fetch(self, item: InputItem, into: Path, progress: Progress) -> Sha256 | None:
        """Its hash, taken on the way. None for a file that has to go alone: it is large, empty, or begun.

        Raises: StorageProblem; TransferStopped, for this one alone.
        """
        if not 0 < item.size_bytes <= FILE_BYTES:
            return None
        wanted = Wanted(item, into, progress)
        try:
            return await self._together.one(wanted, item.size_bytes)
        except asyncio.CancelledError:
            wanted.given_up = True
            raise

    async def aclose(self) -> None:
        await self._together.aclose()

    async def _load(self, load: Sequence[Wanted]) -> Sequence[Sha256 | Exception | None]:
        fresh = await through(lambda: _fresh(load))
        asked = {wanted.item.sha256: wanted for wanted in fresh}
        if asked:
            try:
                await self._fetch(list(asked.values()))
            except CodefyError as error:
                for wanted in asked.values():
                    wanted.answer = wanted.answer or error
        return [wanted.answer for wanted in load]

    async def _fetch(self, load: Sequence[Wanted]) -> None:
        """Raises: StorageProblem, which holds for those without an answer."""
        asked: JsonObject = {"inputs": [wanted.item.sha256 for wanted in load]}
        async with self._http.request(
            "POST", self._path, json=asked, headers={"Accept-Encoding": "identity"}
        ) as response:
            pieces = pieces_of(response)
            manifest, begun = await _manifest(pieces)
            unpacking = Unpacking(_coming(load, manifest))
            await _keep_all(begun, pieces, unpacking)
        if unpacking.n_left:
            raise Busy(f"the line broke before the last {unpacking.n_left} of {len(load)} files")


async def _keep_all(begun: bytes, pieces: AsyncIterator[bytes], unpacking: "Unpacking") -> None:
    """A thread writes and hashes what came while more of it comes."""
    held, n_held = [begun], len(begun)
    keeping: asyncio.Future[None] | None = None
    try:
        async for piece in pieces:
            held.append(piece)
            n_held += len(piece)
            if n_held < HELD_BYTES:
                continue
            if keeping is not None:
                await asyncio.shield(keeping)
            keeping = asyncio.ensure_future(asyncio.to_thread(unpacking.keep, held))
            held, n_held = [], 0
    finally:
        try:
            if keeping is not None:
                await ended(keeping)
        finally:
            await through(lambda: unpacking.end(held))


class Unpacking:
    """The bytes of files, one after another, into their places. All of it blocks."""

    def __init__(self, coming: Sequence[Wanted]) -> None:
        self._coming = iter(coming)
        self.n_left = len(coming)
        self._now: Wanted | None = None
        self._file: FileIO | None = None
        self._digest = hashlib.sha256()
        self._n_missing = 0

    def keep(self, pieces: Sequence[bytes]) -> None:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                if not self._n_missing and not self._begin():
                    return
                part, rest = rest[: self._n_missing], rest[self._n_missing :]
                self._n_missing -= len(part)
                self._take(part)
                if not self._n_missing:
                    self._end()

    def end(self, pieces: Sequence[bytes]) -> None:
        """What came of the last one stays: it goes on alone from there."""
        self.keep(pieces)
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _begin(self) -> bool:
        self._now = next(self._coming, None)
        if self._now is None:
            return False
        self._digest, self._n_missing = hashlib.sha256(), self._now.item.size_bytes
        return True

    def _take(self, part: memoryview) -> None:
        """What one file fails with, the others behind it don't."""
        now = self._now
        assert now is not None
        if now.answer is not None or now.given_up:
            return
        try:
            now.progress.advance(len(part))
            if self._file is None:
                self._file = now.path.open("wb", buffering=0)
            write_all(self._file, part)
            self._digest.update(part)
        except Exception as error:
            now.answer = error

    def _end(self) -> None:
        now = self._now
        assert now is not None
        self.n_left -= 1
        try:
            self._close()
        except OSError as error:
            now.answer = unwritten(now.path, error)
        if now.answer is None and not now.given_up:
            now.answer = Sha256(self._digest.hexdigest())


def _fresh(load: Sequence[Wanted]) -> list[Wanted]:
    """Those of which nothing is here. Blocks."""
    return [wanted for wanted in load if not _n_bytes(wanted.path)]


def _n_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


async def _manifest(pieces: AsyncIterator[bytes]) -> tuple[Manifest, bytes]:
    """And what came behind it. Raises: Busy for one that was damaged on its way."""
    line = b""
    async for piece in pieces:
        line += piece
        head, end, rest = line.partition(b"\n")
        if end:
            try:
                return Manifest.model_validate_json(head), rest
            except ValidationError as error:
                raise _damaged() from error
        if len(line) > MANIFEST_BYTES:
            break
    raise _damaged()


def _coming(load: Sequence[Wanted], manifest: Manifest) -> list[Wanted]:
    """Those whose bytes come; the others get their answers.

    Raises: Busy for a list of other files than were asked for.
    """
    if [listed.sha256 for listed in manifest.files] != [wanted.item.sha256 for wanted in load]:
        raise _damaged()
    coming = []
    for wanted, listed in zip(load, manifest.files, strict=True):
        if listed.size is None:
            wanted.answer = _refusal(listed)
        elif listed.size == wanted.item.size_bytes:
            coming.append(wanted)
        else:
            raise _damaged()
    return coming


def _damaged() -> Busy:
    return Busy("the list of files can't be read; the line may have damaged it")


def _refusal(listed: Listed) -> CodefyError:
    message = listed.detail or "the server doesn't send it"
    match listed.code:
        case "storage.busy":
            return Busy(message, code=listed.code)
        case "storage.corrupt":
            return Corrupt(message, code=listed.code)
        case _:
            return Refused(message, code=listed.code)
