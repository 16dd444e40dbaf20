"""Delivers what one attempt wrote: what it records while it runs, then what it left, last what it goes on from."""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from codefyui_core.agent.disk import Disk
from codefyui_core.errors import CodefyError, Refused, TransferStopped
from codefyui_core.plugin.storage import Receipt, StorageSession
from codefyui_core.runs.events import WarningKind

from .copies import Stamp, snapshot, taken, to_disk
from .found import written
from .gathered import Gathered, each
from .items import Item, is_last, kind_of, of_found, of_record
from .journal import Found, Journal, JournalNotes, Recorded, Settled
from .meter import Meter
from .progress import Direction, Reports
from .tries import Tries

MOST_REPORTED = 64
"""Files that a run reports one after the other and that are kept together."""
_ID = re.compile(r"[0-9a-f]{32}")


class _Report(NamedTuple):
    payload: dict[str, Any]
    ts: int | None


class _Kept(NamedTuple):
    recorded: Recorded
    is_folder: bool
    items: Sequence[Item]
    """What is sent while the run goes on."""


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

    _reported: list[asyncio.Task[None]] = field(default_factory=list)
    """What can still be lost."""
    _waiting: deque[Item] = field(default_factory=deque)
    _senders: list[asyncio.Task[None]] = field(default_factory=list)
    _last: list[Item] = field(default_factory=list)
    _folders: list[Recorded] = field(default_factory=list)
    _dropped: int = 0
    _closing: bool = False
    """The run's processes are gone: what is sent from now on is shown."""
    _n_senders: int = 0
    _under_way: int = 0
    _count: int = 0
    _done: int = 0

    def __post_init__(self) -> None:
        self._keys = set(self.journal.ledger.recorded)
        self._n_kept = len(self._keys)
        self._files: dict[str, Item] = {}
        """What the run recorded, by key."""
        self._keeping: Gathered[_Report, _Kept | None] = Gathered(self._keep_all)
        self._letting_go: Gathered[tuple[Item, bool], None] = Gathered(partial(each, _let_go))

    # ------------------------------------------------------------ while the run executes

    async def record(self, payload: Mapping[str, Any], ts: int | None) -> None:
        """A file or folder that the run reports. It can't be lost any more once ``recorded`` has returned."""
        if len(self._reported) >= MOST_REPORTED:
            await self.recorded()
        keeping = self._record(_Report(dict(payload), ts))
        self._reported.append(asyncio.create_task(keeping, name=f"keeping for {self.run_id}"))

    async def recorded(self) -> None:
        """Returns when nothing that was reported can be lost any more, not when it is sent."""
        while self._reported:
            reported, self._reported = self._reported, []
            await asyncio.gather(*reported)

    async def _record(self, report: _Report) -> None:
        try:
            kept = await self._keeping.one(report)
        except (CodefyError, OSError, KeyError, TypeError, ValueError) as error:
            await self._refused(report, error)
            return
        if kept is None:
            return
        if kept.is_folder:
            self._folders.append(kept.recorded)
        else:
            self._take(kept.items)

    def _keep_all(self, reports: Sequence[_Report]) -> Sequence[_Kept | Exception | None]:
        kept = each(self._keep, reports)
        self.journal.add(*(one.recorded for one in kept if isinstance(one, _Kept)))
        return kept

    def _keep(self, report: _Report) -> _Kept | None:
        """None: it was reported before."""
        payload = report.payload
        path, key = Path(payload["path"]), payload["artifact_id"]
        if not (isinstance(key, str) and key and isinstance(payload["kind"], str)):
            raise Refused("the run reported it without an id or a kind")
        if key in self._keys:
            return None
        _, is_folder = kind_of(path, self.session.workspace.folders)
        if is_folder:
            self._keys.add(key)
            return _Kept(Recorded(key=key, payload=payload, ts=report.ts), is_folder, ())
        self._n_kept += 1
        target = self.outbox / str(self._n_kept)
        stamp = taken(self.outbox / key, target) if _ID.fullmatch(key) else None
        if stamp is None:
            snapshot(path, target)
            stamp = Stamp.of(path.lstat())
        self._keys.add(key)
        recorded = Recorded(key=key, payload=payload, ts=report.ts, snapshot=str(target), stamp=tuple(stamp))
        return _Kept(recorded, is_folder, self._items([recorded]))

    async def _refused(self, report: _Report, error: Exception) -> None:
        name = str(report.payload.get("name") or report.payload.get("path") or "a file")
        await self._warn_left(name, error)
        await self.reports.artifact(report.payload | {"state": "on_worker"}, report.ts)

    def _take(self, items: Iterable[Item]) -> None:
        for item in items:
            if is_last(item.payload):
                self._last.append(item)
            else:
                self._start(item)

    def _items(self, those: Iterable[Recorded]) -> list[Item]:
        """What of them isn't settled. Blocking."""
        settled = self.journal.ledger.settled
        return [item for one in those for item in self._of(one) if item.key not in settled]

    def _of(self, recorded: Recorded) -> Sequence[Item]:
        """Of a file it is the same whenever it is asked for. Blocking."""
        if recorded.key in self._files:
            return (self._files[recorded.key],)
        items = tuple(of_record(recorded, self.session.workspace.folders))
        if recorded.snapshot is not None:
            (self._files[recorded.key],) = items
        return items

    # ------------------------------------------------------------ afterwards

    async def hold(self) -> None:
        """The run's processes are gone: have on the disk what is to be delivered, and which files that are, so that a
        loss of power changes none and adds none. Raises nothing but cancellation.
        """
        await self.recorded()
        try:
            await asyncio.to_thread(self._hold)
        except OSError as error:
            self.log.warning("run %s: its files can't be put on the disk: %s", self.run_id, error)

    def _hold(self) -> None:
        found = self._found() if self.session.workspace.private else []
        recorded = self._items(self.journal.ledger.unsettled)
        to_disk((item.source for item in (*recorded, *found)), self.outbox.parent, Disk())
        self.journal.add(Found(stamps={item.key: tuple(item.stamp or ()) for item in found}))

    async def finish(self, *, before: Iterable[Recorded] = ()) -> None:
        """Every file is where it goes, or given up, when this returns. The run's processes are gone. ``before``:
        what a process before this one hadn't delivered.
        """
        await self.recorded()
        self._take(await asyncio.to_thread(self._items, list(before)))
        self._closing, self._count, self._done = True, self._unsent, 0
        self._take(await asyncio.to_thread(self._items, self._folders))
        for item in await asyncio.to_thread(self._found) if self.session.workspace.private else ():
            self._start(item)
        self._count = self._unsent + self._done
        await self._all_sent()
        for item in self._last:
            self._start(item)
        self._last = []
        await self._all_sent()
        if self._dropped:
            await self._warn_dropped()

    @property
    def _unsent(self) -> int:
        return len(self._waiting) + self._under_way + len(self._last)

    async def _all_sent(self) -> None:
        while self._senders:
            senders, self._senders = self._senders, []
            await asyncio.gather(*senders)

    def _found(self) -> list[Item]:
        ledger, folders = self.journal.ledger, self.session.workspace.folders
        recorded: dict[str, Stamp] = {}
        for one in ledger.recorded.values():
            for item in self._of(one):
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
        tasks = [*self._reported, *self._senders]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._keeping.aclose()
        await self._letting_go.aclose()

    # ------------------------------------------------------------ one file

    def _start(self, item: Item) -> None:
        self._waiting.append(item)
        if self._n_senders < self.parallel:
            self._n_senders += 1
            self._senders = [one for one in self._senders if not _is_through(one)]
            self._senders.append(asyncio.create_task(self._send_some(), name=f"sending for {self.run_id}"))

    async def _send_some(self) -> None:
        try:
            while self._waiting:
                item = self._waiting.popleft()
                self._under_way += 1
                await self._send(item)
                self._under_way -= 1
        finally:
            self._n_senders -= 1

    async def _send(self, item: Item) -> None:
        """Raises nothing but cancellation: what goes wrong leaves the file on this machine."""
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
        return await self.tries.done(item.name, lambda meter: self._once(item, meter))

    async def _once(self, item: Item, meter: Meter) -> Receipt:
        notes = JournalNotes(self.journal, item.key)
        with ExitStack() as stack:
            if self._closing:
                shown = self.reports.shown(Direction.OUT, self._next, item.name, meter, item.size_bytes)
                stack.enter_context(shown)
            receipt: Receipt = await self.session.publish(item.output, item.source, notes, meter)
        return receipt

    def _next(self) -> tuple[int, int]:
        return min(self._done + 1, self._count), self._count

    async def _deliver(self, item: Item, receipt: Receipt, index: int) -> None:
        """The receipt is on the disk before it is sent. ``index``: how many are done, with this one."""
        shown = self._closing
        await self._settle(item, item.delivered(self.backend, receipt))
        size = receipt.size_bytes if receipt.size_bytes is not None else item.output.size_bytes or 0
        await self._let_go(item, delivered=True)
        if shown:
            await self.reports.sent(index, self._count, item.name, size)

    async def _leave(self, item: Item) -> None:
        await self._settle(item, await asyncio.to_thread(item.left))
        await self._let_go(item, delivered=False)

    async def _settle(self, item: Item, payload: dict[str, Any]) -> None:
        await self.journal.write(Settled(key=item.key, payload=payload, ts=item.ts))
        await self.reports.artifact(payload, item.ts)

    async def _let_go(self, item: Item, *, delivered: bool) -> None:
        if item.snapshot is not None:
            await self._letting_go.sized((item, delivered), item.size_bytes)

    # ------------------------------------------------------------ what people are told

    async def _warn_left(self, name: str, error: Exception) -> None:
        why = error.message if isinstance(error, CodefyError) else str(error)
        await self.reports.warn(WarningKind.TRANSFER_FAILED, f"{name} stays on the worker: {why}")

    async def _warn_dropped(self) -> None:
        count = self._dropped
        files = "1 file stays" if count == 1 else f"{count} files stay"
        detail = f"{files} on the worker: the run was stopped before everything was sent"
        await self.reports.warn(WarningKind.TRANSFER_FAILED, detail, count)


def _let_go(known: tuple[Item, bool]) -> None:
    item, delivered = known
    item.let_go(delivered=delivered)


def _is_through(task: asyncio.Task[None]) -> bool:
    """Without an error that somebody has still to see."""
    return task.done() and not task.cancelled() and task.exception() is None
