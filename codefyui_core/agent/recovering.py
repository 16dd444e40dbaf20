"""Attempts that a process before this one left in its spools."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from functools import partial

from codefyui_core.plugin.storage import StorageKind

from . import folder
from .attempts import Attempt
from .carrying.left import read_left
from .disk import Disk
from .equipment import Equipment
from .folder import Owner
from .machine import Effect
from .places import Places
from .spool import Spool
from .stream import Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovering:
    """``heir``: who left something there is known to be dead."""

    places: Places
    owner: Owner
    heir: bool
    disk: Disk
    equipment: Equipment
    news: Callable[[], None]
    effects: Callable[[Attempt, Iterable[Effect]], None]
    log: logging.Logger

    async def attempts(self) -> AsyncIterator[Attempt]:
        """They are ours from now on."""
        taking = partial(folder.take_over, self.places.spools, self.owner, heir=self.heir)
        left, strange = await asyncio.to_thread(taking)
        for path in strange:
            self.log.warning("the spool %s belongs to an agent that may still run; left alone", path)
        for one in left:
            spool = await asyncio.to_thread(partial(Spool, one.path, disk=self.disk))
            if spool.last == 0 and one.end is None:
                # Without its first record nothing ran, and the control plane may send it again.
                await asyncio.to_thread(folder.remove, one.path)
                continue
            yield await self._attempt(one, spool)

    async def _attempt(self, one: folder.Left, spool: Spool) -> Attempt:
        stream = Stream(spool, news=self.news, log=self.log)
        stream.start()
        goes_on = one.end is not None and self._carries(one.head.backend)
        reading = partial(read_left, one.path, spool, self.log, goes_on=goes_on)
        return Attempt(
            head=one.head,
            path=one.path,
            stream=stream,
            effects=self.effects,
            log=self.log,
            lost_end=one.end,
            recovered=True,
            left=await asyncio.to_thread(reading),
        )

    def _carries(self, backend: str | None) -> bool:
        half = self.equipment.halves.get(backend or "")
        return half is not None and half[0].kind is StorageKind.CARRIER
