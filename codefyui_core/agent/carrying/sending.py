"""Delivers what one attempt wrote: what it records while it runs, then what it left, last what it goes on from."""

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from codefyui_core.agent.disk import Disk
from codefyui_core.errors import CodefyError, Refused, TransferStopped
from codefyui_core.plugin.storage import Receipt, StorageSession
from codefyui_core.runs.events import WarningKind

from .copies import Stamp, snapshot, taken, to_disk
from .found import written
from .items import Item, is_last, kind_of, of_found, of_record
from .journal import Found, Journal, JournalNotes, Recorded, Settled
from .meter import Meter
from .progress import Direction, Reports
from .tries import Tries

_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(kw_only=True)
class Sending:
    """Of one attempt. ``outbox``: for what recorded files were when they were reported."""

    run_id: str
    backend: str
    session: StorageSession[Any, Any]
    tries: Tries
    reports: Reports
    journal: Journal
    outbox: Path
    parallel: int
    log: logging.Logger

    _sending: list[asyncio.Task[None]] = field(default_factory=list)
    _last: list[Item] = field(default_factory=list)
    _folders: list[Recorded] = field(default_factory=list)
    _dropped: int = 0
    _closing: bool = False
    """The run's processes are gone: what is sent from now on is shown."""
    _count: int = 0
    _done: int = 0

    def __post_init__(self) -> None:
        self._room = asyncio.Semaphore(self.parallel)

    # ------------------------------------------------------------ while the run executes

    async def record(self, payload: Mapping[str, Any], ts: int | None) -> None:
        """A file or folder that the run reports. Returns when it can't be lost any more, not when it is sent."""
        if str(payload.get("artifact_id")) in self.journal.ledger.recorded:
            return
        try:
            recorded, is_folder = await asyncio.to_thread(self._keep, dict(payload), ts)
        except (CodefyError, OSError, KeyError, TypeError, ValueError) as error:
            await self._refused(dict(payload), ts, error)
            return
        if is_folder:
            self._folders.append(recorded)
        else:
            await self._take(recorded)

    def _keep(self, payload: dict[str, Any], ts: int | None) -> tuple[Recorded, bool]:
        path, key = Path(payload["path"]), payload["artifact_id"]
        if not (isinstance(key, str) and key and isinstance(payload["kind"], str)):
            raise Refused("the run reported it without an id or a kind")
        _, is_folder = kind_of(path, self.session.workspace.folders)
        kept: dict[str, Any] = {}
        if not is_folder:
            target = self.outbox / str(len(self.journal.ledger.recorded) + 1)
            stamp = taken(self.outbox / key, target) if _ID.fullmatch(key) else None
            if stamp is None:
                snapshot(path, target)
                stamp = Stamp.of(path.lstat())
            kept = {"snapshot": str(target), "stamp": tuple(stamp)}
        recorded = Recorded(key=key, payload=payload, ts=ts, **kept)
        self.journal.add(recorded)
        return recorded, is_folder

    async def _refused(self, payload: dict[str, Any], ts: int | None, error: Exception) -> None:
        name = str(payload.get("name") or payload.get("path") or "a file")
        await self._warn_left(name, error)
        await self.reports.artifact(payload | {"state": "on_worker"}, ts)

    async def _take(self, recorded: Recorded) -> None:
        for item in await asyncio.to_thread(self._items, recorded):
            if is_last(item.payload):
                self._last.append(item)
            else:
                self._start(item)

    def _items(self, recorded: Recorded) -> list[Item]:
        settled = self.journal.ledger.settled
        items = of_record(recorded, self.session.workspace.folders)
        return [one for one in items if one.key not in settled]

    # ------------------------------------------------------------ afterwards

    async def hold(self) -> None:
        """The run's processes are gone: have on the disk what is to be delivered, and which files that are, so that a
        loss of power changes none and adds none. Raises nothing but cancellation.
        """
        try:
            await asyncio.to_thread(self._hold)
        except OSError as error:
            self.log.warning("run %s: its files can't be put on the disk: %s", self.run_id, error)

    def _hold(self) -> None:
        found = self._found() if self.session.workspace.private else []
        recorded = [item for one in self.journal.ledger.unsettled for item in self._items(one)]
        to_disk((item.source for item in (*recorded, *found)), self.outbox.parent, Disk())
        self.journal.add(Found(stamps={item.key: tuple(item.stamp or ()) for item in found}))

    async def finish(self, *, before: Iterable[Recorded] = ()) -> None:
        """Every file is where it goes, or given up, when this returns. The run's processes are gone. ``before``:
        what a process before this one hadn't delivered.
        """
        for recorded in before:
            await self._take(recorded)
        self._closing, self._count, self._done = True, len(self._unsent()) + len(self._last), 0
        for recorded in self._folders:
            await self._take(recorded)
        for item in await asyncio.to_thread(self._found) if self.session.workspace.private else ():
            self._start(item)
        self._count = len(self._unsent()) + len(self._last) + self._done
        await self._all_sent()
        for item in self._last:
            self._start(item)
        await self._all_sent()
        if self._dropped:
            await self._warn_dropped()

    def _unsent(self) -> list[asyncio.Task[None]]:
        return [task for task in self._sending if not task.done()]

    async def _all_sent(self) -> None:
        await asyncio.gather(*self._sending)

    def _found(self) -> list[Item]:
        ledger, folders = self.journal.ledger, self.session.workspace.folders
        recorded: dict[str, Stamp] = {}
        for one in ledger.recorded.values():
            for item in of_record(one, folders):
                stamp = item.stamp
                recorded[item.relative_path] = Stamp.of(item.path.lstat()) if stamp is None else stamp
        found = written(folders, ledger.placed, recorded)
        items = [of_found(self.run_id, relative, path, seen) for relative, path, seen in found]
        return [
            self._as_held(item) for item in items if item.key not in ledger.settled and self._is_held(item)
        ]

    def _is_held(self, item: Item) -> bool:
        """It was there when the run's processes ended."""
        found = self.journal.ledger.found
        return found is None or item.key in found.stamps

    def _as_held(self, item: Item) -> Item:
        found = self.journal.ledger.found
        if found is None or found.stamps[item.key] == item.stamp:
            return item
        return replace(item, problem="it isn't what it was when the run ended")

    async def aclose(self) -> None:
        """What isn't sent yet is left to the next process."""
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)

    # ------------------------------------------------------------ one file

    def _start(self, item: Item) -> None:
        self._sending.append(asyncio.create_task(self._send(item), name=f"sending {item.name}"))

    async def _send(self, item: Item) -> None:
        """Raises nothing but cancellation: what goes wrong leaves the file on this machine."""
        async with self._room:
            try:
                receipt = await self._publish(item)
            except TransferStopped:
                self._done += 1
                self._dropped += 1
                await self._leave(item)
            except (CodefyError, OSError) as error:
                self._done += 1
                self.log.warning("run %s: %s stays on this machine: %s", self.run_id, item.name, error)
                await self._warn_left(item.name, error)
                await self._leave(item)
            else:
                self._done += 1
                await self._deliver(item, receipt, self._done)

    async def _publish(self, item: Item) -> Receipt:
        if item.problem:
            raise Refused(item.problem)
        self.tries.halt.check()
        size = await asyncio.to_thread(lambda: item.size_bytes)
        return await self.tries.done(item.name, lambda meter: self._once(item, size, meter))

    async def _once(self, item: Item, size: int, meter: Meter) -> Receipt:
        notes = JournalNotes(self.journal, item.key)
        async with AsyncExitStack() as stack:
            if self._closing:
                shown = self.reports.shown(Direction.OUT, self._next, item.name, meter, size)
                await stack.enter_async_context(shown)
            receipt: Receipt = await self.session.publish(item.output, item.source, notes, meter)
        return receipt

    def _next(self) -> tuple[int, int]:
        return min(self._done + 1, self._count), self._count

    async def _deliver(self, item: Item, receipt: Receipt, index: int) -> None:
        """The receipt is on the disk before it is sent. ``index``: how many are done, with this one."""
        shown = self._closing
        await self._settle(item, item.delivered(self.backend, receipt))
        size = receipt.size_bytes if receipt.size_bytes is not None else item.output.size_bytes or 0
        await asyncio.to_thread(item.let_go, delivered=True)
        if shown:
            await self.reports.there(Direction.OUT, index, self._count, item.name, size, "sent")

    async def _leave(self, item: Item) -> None:
        await self._settle(item, await asyncio.to_thread(item.left))
        await asyncio.to_thread(item.let_go, delivered=False)

    async def _settle(self, item: Item, payload: dict[str, Any]) -> None:
        await asyncio.to_thread(self.journal.add, Settled(key=item.key, payload=payload, ts=item.ts))
        await self.reports.artifact(payload, item.ts)

    # ------------------------------------------------------------ what people are told

    async def _warn_left(self, name: str, error: Exception) -> None:
        why = error.message if isinstance(error, CodefyError) else str(error)
        await self.reports.warn(WarningKind.TRANSFER_FAILED, f"{name} stays on the worker: {why}")

    async def _warn_dropped(self) -> None:
        count = self._dropped
        files = "1 file stays" if count == 1 else f"{count} files stay"
        detail = f"{files} on the worker: the run was stopped before everything was sent"
        await self.reports.warn(WarningKind.TRANSFER_FAILED, detail, count)
