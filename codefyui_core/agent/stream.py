"""The stream of one attempt while its agent lives: appended, synced in groups, read by the sender.

When the disk is full, what comes waits in memory and goes straight to the control plane; when that is full,
too, ``append`` waits, which holds the run at its pipe. Nothing is dropped.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from codefyui_core.wire.limits import BATCH_BYTES, BATCH_ITEMS, EVENT_BYTES, KIB, MIB
from codefyui_core.wire.messages import ItemKind

from .spool import MUST_SYNC, Gap, Spool

HELD_BYTES = 8 * MIB
RESERVE_BYTES = 64 * KIB
SYNC_EVERY_S = 0.1
RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class _Held:
    kind: ItemKind
    payload: bytes
    must_sync: bool


class Stream:
    """Over a spool. ``news`` is called when there is more to send."""

    def __init__(self, spool: Spool, *, news: Callable[[], None], log: logging.Logger) -> None:
        self.spool = spool
        self._news = news
        self._log = log
        self._held: deque[_Held] = deque()
        self._held_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._dirty = asyncio.Event()
        self._urgent = asyncio.Event()
        self._synced = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    # ------------------------------------------------------------ writing

    @property
    def last(self) -> int:
        return self.spool.last + len(self._held)

    async def append(self, kind: ItemKind, payload: bytes, *, must_sync: bool = False) -> int:
        """The number that it got."""
        await self._room.wait()
        must_sync = must_sync or kind in MUST_SYNC
        if kind in {ItemKind.EXITED, ItemKind.END} and self._held:
            self._give_up_reserve()
        if not self._write_held() or not self._write(kind, payload, must_sync):
            self._hold(_Held(kind, payload, must_sync))
        self._wake(urgent=must_sync)
        return self.last

    def _write(self, kind: ItemKind, payload: bytes, must_sync: bool) -> bool:
        try:
            self.spool.append(kind, payload, must_sync=must_sync)
        except OSError:
            if kind not in {ItemKind.EXITED, ItemKind.END} or not self._give_up_reserve():
                return False
            return self._write(kind, payload, must_sync)
        return True

    def _hold(self, one: _Held) -> None:
        if not self._held:
            self._log.warning("the disk of %s takes nothing more; events wait in memory", self.spool.folder)
        self._held.append(one)
        self._held_bytes += len(one.payload)
        if self._held_bytes >= HELD_BYTES:
            self._room.clear()

    def _write_held(self) -> bool:
        while self._held:
            one = self._held[0]
            if not self._write(one.kind, one.payload, one.must_sync):
                return False
            self._drop_held()
        return True

    def _drop_held(self) -> None:
        self._held_bytes -= len(self._held.popleft().payload)
        if self._held_bytes < HELD_BYTES:
            self._room.set()

    def _give_up_reserve(self) -> bool:
        """Room for ``exited`` and ``end`` on a full disk."""
        try:
            (self.spool.folder / "reserve").unlink()
        except OSError:
            return False
        return True

    def keep_reserve(self) -> None:
        """Written when the attempt begins. Blocking."""
        with suppress(OSError):
            (self.spool.folder / "reserve").write_bytes(bytes(RESERVE_BYTES))

    async def durable(self, seq: int) -> None:
        """Until everything up to that number is on disk."""
        async with self._synced:
            await self._synced.wait_for(lambda: self.spool.durable >= seq)

    # ------------------------------------------------------------ the syncing task

    def start(self) -> None:
        self._task = asyncio.create_task(self._sync_forever(), name=f"spool {self.spool.folder.name}")

    async def aclose(self) -> None:
        """Sync what is there, as far as the disk lets us."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        with suppress(OSError):
            await self._sync()
        self.spool.close()

    async def _sync_forever(self) -> None:
        while True:
            await self._dirty.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(SYNC_EVERY_S):
                    await self._urgent.wait()
            self._dirty.clear()
            self._urgent.clear()
            await self._try_sync()

    async def _try_sync(self) -> None:
        try:
            written = self._write_held()
            await self._sync()
        except OSError as error:
            self._log.warning("the spool %s can't be synced: %s", self.spool.folder, error)
            written = False
        if not written:
            await asyncio.sleep(RETRY_S)
            self._wake(urgent=True)

    async def _sync(self) -> None:
        sync = self.spool.sync()
        if sync is None:
            return
        try:
            await asyncio.to_thread(sync.run)
        except BaseException:
            self.spool.synced(sync, ok=False)
            raise
        self.spool.synced(sync)
        async with self._synced:
            self._synced.notify_all()
        self._news()

    def _wake(self, *, urgent: bool) -> None:
        self._dirty.set()
        if urgent:
            self._urgent.set()
        self._news()

    # ------------------------------------------------------------ reading

    @property
    def sendable(self) -> int:
        """The highest number that may be sent now."""
        if self.spool.sendable < self.spool.last:
            return self.spool.sendable
        free = next((n for n, one in enumerate(self._held) if one.must_sync), len(self._held))
        return self.spool.last + free

    async def read(self, first: int, *, limit_bytes: int = BATCH_BYTES) -> Sequence[bytes]:
        if first > self.spool.last:
            return self._read_held(first, limit_bytes)
        if self.spool.in_memory(first):
            return self.spool.read_memory(first, limit_bytes=limit_bytes, limit_items=BATCH_ITEMS)
        return await asyncio.to_thread(
            self.spool.disk_read(first, limit_bytes=limit_bytes, limit_items=BATCH_ITEMS)
        )

    async def look_again(self, seq: int) -> None:
        """What should be there can't be read."""
        await asyncio.to_thread(self.spool.look_again, seq)

    def _read_held(self, first: int, limit_bytes: int) -> Sequence[bytes]:
        found: list[bytes] = []
        total = 0
        for seq, one in enumerate(self._held, self.spool.last + 1):
            if seq < first:
                continue
            total += len(one.payload) + 1
            if seq > self.sendable or (found and total > limit_bytes):
                break
            found.append(one.payload)
        return found

    def gap(self, seq: int) -> Gap | None:
        return self.spool.gap(seq) if seq <= self.spool.last else None

    def trim(self, position: int) -> None:
        """Recorded up to there."""
        while self._held and self.spool.last < position:
            self._drop_held()
            self.spool.continue_at(self.spool.last + 2)
        self.spool.trim(position)


def item(kind: ItemKind, payload: dict[str, Any], **more: Any) -> bytes:
    """The JSON of an item that the agent itself writes."""
    return json.dumps({"kind": kind.value, "payload": payload, **more}, separators=(",", ":")).encode()


def within_limit(line: bytes, describe: Callable[[bytes], bytes]) -> bytes:
    """A run's line, or what stands for one that is too large."""
    return line if len(line) <= EVENT_BYTES else describe(line)
