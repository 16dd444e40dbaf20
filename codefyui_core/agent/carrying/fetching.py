"""Brings the inputs of one attempt into its folder: from the cache, or into the cache first."""

import asyncio
import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from codefyui_core.errors import CodefyError, Refused, StorageProblem, TransferStopped
from codefyui_core.files import Folders
from codefyui_core.ids import Sha256
from codefyui_core.plugin.storage import InputItem, StorageSession

from .cache import InputCache
from .copies import place
from .found import input_stamp
from .gathered import Gathered, each
from .journal import Journal, Placed
from .meter import Meter
from .progress import Direction, Reports
from .tries import Tries

LOOKS = 5
"""How often an input may vanish from the cache, which people may delete, between two looks."""


@dataclass(kw_only=True)
class Fetching:
    """Of one attempt."""

    session: StorageSession[Any, Any]
    inputs: Sequence[InputItem]
    cache: InputCache
    tries: Tries
    reports: Reports
    journal: Journal
    parallel: int

    def __post_init__(self) -> None:
        self._copying: Gathered[InputItem, Placed] = Gathered(partial(each, self._copy))
        self._there = 0
        self._placed: list[Placed] = []

    async def all(self) -> None:
        """Every input is where the graph looks for it when this returns.

        Raises: StorageProblem that names the input; TransferStopped.
        """
        await self.tries.halt.unless(self._all())
        await self.journal.write(*self._placed)

    async def _all(self) -> None:
        left = iter(self.inputs)
        fetching = [
            asyncio.create_task(self._some(left)) for _ in range(min(self.parallel, len(self.inputs)))
        ]
        try:
            await asyncio.gather(*fetching)
        finally:
            for one in fetching:
                one.cancel()
            await asyncio.gather(*fetching, return_exceptions=True)

    async def _some(self, left: Iterator[InputItem]) -> None:
        for item in left:
            await self._one(item)

    async def _one(self, item: InputItem) -> None:
        self.tries.halt.check()
        try:
            cached = await self._place(item)
        except TransferStopped:
            raise
        except StorageProblem as error:
            raise type(error)(_failed(item, error.message), code=error.code) from error
        except CodefyError as error:
            raise Refused(_failed(item, error.message), code=error.code) from error
        except OSError as error:
            raise Refused(_failed(item, str(error)), code=code_of(error)) from error
        self._there += 1
        how = "cached" if cached else "fetched"
        size, count = item.size_bytes, len(self.inputs)
        await self.reports.there(Direction.IN, self._there, count, item.name, size, how)

    async def _place(self, item: InputItem) -> bool:
        """Into the run's folder. True: it was in the cache."""
        for _ in range(LOOKS):
            cached = await self._cached(item)
            try:
                self._placed.append(await self._copying.sized(item, item.size_bytes))
            except FileNotFoundError:
                continue  # somebody deleted it from the cache meanwhile
            return cached
        raise Refused("it is deleted from the cache as soon as it is there")

    async def _cached(self, item: InputItem) -> bool:
        """In the cache when this returns. True: it was there before."""
        async with self.cache.turn(item.sha256):
            if await self.cache.has(item.sha256, item.size_bytes):
                return True
            await self.tries.done(item.name, lambda meter: self._fetch(item, meter))
            return False

    async def _fetch(self, item: InputItem, meter: Meter) -> None:
        meter.done_bytes = await self.cache.begun_bytes(item.sha256)

        async def into(path: Path) -> Sha256 | None:
            return await self.session.fetch(item, path, meter)

        with self.reports.shown(Direction.IN, self._next, item.name, meter, item.size_bytes):
            await self.cache.take(item.sha256, item.size_bytes, into)

    def _next(self) -> tuple[int, int]:
        return min(self._there + 1, len(self.inputs)), len(self.inputs)

    def _copy(self, item: InputItem) -> Placed:
        """A file of its own, so that a node which writes over it can't touch the cache."""
        root, name = _place_of(item, self.session.workspace.folders)
        source = self.cache.open(item.sha256)
        try:
            found = place(root, name, source, self.tries.halt.check)
        finally:
            os.close(source)
        relative = item.place or f"{item.family.value}/{item.name}"
        return Placed(relative=relative, sha256=item.sha256, stamp=input_stamp(found))


def _place_of(item: InputItem, folders: Folders) -> tuple[Path, str]:
    if item.place is not None:
        return folders.root, item.place
    return folders.of(item.family), item.name


def _failed(item: InputItem, why: str) -> str:
    return f"the input {item.name} can't be fetched: {why}"


def code_of(error: OSError) -> str:
    full = error.errno in {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
    return "storage.full" if full else "storage.refused"
