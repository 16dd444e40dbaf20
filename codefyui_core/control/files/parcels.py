"""Files that come together: whole, one after another, with two commits for all of them.

Their rows come first, with name, size and hash as if all were here, and are committed while the bytes are on their
way. So ``forget`` finds what a crash leaves of them, and when they come again, those that have their names by then are
recognized by their content.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from sqlalchemy import RowMapping

from codefyui_core.errors import CodefyError
from codefyui_core.ids import RunId, Sha256
from codefyui_core.plugin.storage import Arrived, Arriving, Coming

from . import lots
from .lots import Whole, Writer
from .upload_rows import CHOSEN, PLACED, Named, UploadRows

T = TypeVar("T")
LOT_BYTES = 1 << 20
"""Of what arrives, before a thread writes and hashes it."""
SYNCS_AT_ONCE = 4
"""A disk takes several syncs in hardly more time than one."""
Place = Callable[[Arriving, int, Sha256], Awaitable[Arrived]]


class Parcel:
    """The files of one request. Whoever makes one has the turns of all its files."""

    def __init__(self, rows: UploadRows, run: RunId, coming: Sequence[Coming], place: Place) -> None:
        """``place``: gives a single file its name, however often it is taken meanwhile."""
        self._rows = rows
        self._run = run
        self._place = place
        self._answers = [
            one.file
            if isinstance(one.file, CodefyError)
            else Whole(file=one.file, size_bytes=one.size_bytes, sha256=one.sha256)
            for one in coming
        ]
        self._sizes = [one.size_bytes for one in coming]
        self._wholes = [one for one in self._answers if isinstance(one, Whole)]

    async def taken(
        self, chunks: AsyncIterator[bytes], agreed: Callable[[], Awaitable[None]]
    ) -> list[Arrived | CodefyError]:
        """See ``plugin.hosts.Arrivals.take``."""
        broken = await self._received(chunks)
        here = [whole for whole in self._wholes if whole.is_open and whole.is_here]
        await self._sync(here)
        try:
            await agreed()
        except CodefyError:
            await self._settle([])
            raise
        await self._settle(here)
        if broken is not None:
            raise broken
        return [
            one if isinstance(one, CodefyError) else one.problem or one.arrived() for one in self._answers
        ]

    # ------------------------------------------------------------ rows and names

    async def _choose(self) -> None:
        """Every file has a row before a byte of it is stored."""
        rows = await self._rows.find_all(self._run, [whole.file.key for whole in self._wholes])
        for whole in self._wholes:
            row = rows.get(whole.file.key)
            if row is not None and row["state"] == PLACED:
                whole.was_placed(row)
        chosen = [one for one in self._wholes if one.is_open and _state(rows, one) == CHOSEN]
        if chosen:
            await _through(lots.recognize, [(one, rows[one.file.key]) for one in chosen])
        opened = [whole for whole in self._wholes if whole.is_open]
        await _through(lots.choose, opened)
        named = [
            Named(whole.file, whole.name, whole.size_bytes, whole.sha256) for whole in opened if whole.is_open
        ]
        await self._rows.choose(
            new=[one for one in named if one.file.key not in rows],
            known=[one for one in named if one.file.key in rows],
            placed=[whole.file for whole in chosen if whole.is_placed],
        )

    async def _settle(self, here: Sequence[Whole]) -> None:
        """Those that are here get their names; of the others nothing is left."""
        here = [whole for whole in here if whole.is_open]
        taken = await _through(lots.place, here) if here else []
        dropped = [whole for whole in self._wholes if not (whole.is_placed or whole in taken)]
        if dropped:
            await _through(lots.remove, dropped)
        await self._rows.settle(
            placed=[whole.file for whole in here if whole.is_placed],
            dropped=[whole.file for whole in dropped],
        )
        await asyncio.gather(*map(self._place_alone, taken))

    async def _place_alone(self, whole: Whole) -> None:
        try:
            arrived = await self._place(whole.file, whole.size_bytes, whole.sha256)
        except (CodefyError, OSError) as error:
            whole.failed(error)
        else:
            whole.name, whole.is_placed = arrived.relative_path, True

    # ------------------------------------------------------------ bytes

    async def _received(self, chunks: AsyncIterator[bytes]) -> Exception | None:
        """What broke the line. A thread writes and hashes what came while more of it comes."""
        choosing = asyncio.ensure_future(self._choose())
        writer: Writer | None = None
        writing: asyncio.Future[None] | None = None
        lots_of = _Lots(chunks, sum(self._sizes))
        try:
            async with aclosing(lots_of.all()) as coming:
                async for pieces in coming:
                    if writer is None or writing is None:
                        await asyncio.shield(choosing)
                        writer = Writer(self._wanted())
                    else:
                        await asyncio.shield(writing)
                    writing = asyncio.ensure_future(asyncio.to_thread(writer.write, pieces))
            assert writing is not None, "there is a last lot, if an empty one"
            await asyncio.shield(writing)
        finally:
            await _ended(choosing)
            if writing is not None:
                await _ended(writing)
            if writer is not None and writer.is_open:
                await asyncio.to_thread(writer.close)
        return lots_of.broken

    def _wanted(self) -> list[tuple[int, Whole | None]]:
        return [
            (size, one if isinstance(one, Whole) and one.is_open else None)
            for size, one in zip(self._sizes, self._answers, strict=True)
        ]

    async def _sync(self, wholes: Sequence[Whole]) -> None:
        n_at_once = min(SYNCS_AT_ONCE, len(wholes))
        await asyncio.gather(*(_through(lots.sync, wholes[n::n_at_once]) for n in range(n_at_once)))


class _Lots:
    """What comes, in larger lots; at least one. ``broken``: why it ended before or after its time."""

    def __init__(self, chunks: AsyncIterator[bytes], n_bytes: int) -> None:
        self.broken: Exception | None = None
        self._chunks = chunks
        self._left = n_bytes

    async def all(self) -> AsyncGenerator[list[bytes]]:
        held: list[bytes] = []
        n_held = 0
        try:
            async for chunk in self._chunks:
                self._left -= len(chunk)
                if self._left < 0:
                    raise CodefyError("More bytes came than its files have.", code="request.invalid")
                held.append(chunk)
                n_held += len(chunk)
                if n_held >= LOT_BYTES:
                    yield held
                    held, n_held = [], 0
            if self._left:
                raise CodefyError(
                    f"{self._left} bytes of its files are missing. Send it again.", code="request.invalid"
                )
        except Exception as error:
            self.broken = error
        yield held


def _state(rows: Mapping[str, RowMapping], whole: Whole) -> str | None:
    row = rows.get(whole.file.key)
    return None if row is None else str(row["state"])


async def _through(work: Callable[..., T], *about: Any) -> T:
    """In a thread, and to its end also when the request is cut meanwhile."""
    doing = asyncio.ensure_future(asyncio.to_thread(work, *about))
    try:
        return await asyncio.shield(doing)
    finally:
        await _ended(doing)


async def _ended(work: "asyncio.Future[Any]") -> None:
    """Its error is taken note of; whoever needs it has asked for it."""
    await asyncio.wait({work})
    if not work.cancelled():
        work.exception()
