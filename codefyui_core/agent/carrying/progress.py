"""How far the transfers of a run are, as events of its log."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any

from codefyui_core.agent.stream import Stream, item
from codefyui_core.clocks import AttentiveClock
from codefyui_core.runs.events import EventType, WarningKind, warning_payload
from codefyui_core.wire.limits import EVENT_BYTES
from codefyui_core.wire.messages import ItemKind

from .meter import Meter

SHOW_EVERY_S = 2.0
_UNITS = ("KiB", "MiB", "GiB", "TiB")


class Direction(StrEnum):
    IN = "in"
    OUT = "out"


_DOING = {Direction.IN: "fetching inputs", Direction.OUT: "uploading outputs"}


def size_text(n_bytes: int) -> str:
    """``1.2 MiB``: one decimal, the largest binary unit of which there is at least one (IEC 80000-13)."""
    if n_bytes < 1024:
        return f"{n_bytes} B"
    size = float(n_bytes)
    for unit in _UNITS:
        size /= 1024
        if round(size, 1) < 1024 or unit == _UNITS[-1]:
            return f"{size:.1f} {unit}"
    raise AssertionError


class Reports:
    """Writes into the stream of one attempt."""

    def __init__(self, stream: Stream, clock: AttentiveClock) -> None:
        self._stream = stream
        self._clock = clock

    async def artifact(self, payload: Mapping[str, Any], ts: int | None) -> None:
        event = self._item(EventType.ARTIFACT, payload, ts)
        if len(event) > EVENT_BYTES:
            event = self._item(EventType.ARTIFACT, dict(payload) | {"meta": None}, ts)
        await self._stream.append(ItemKind.EVENT, event, must_sync=True)

    async def warn(self, kind: WarningKind, detail: str, count: int = 1, **more: Any) -> None:
        payload = warning_payload(kind, detail, count) | more
        await self._stream.append(ItemKind.EVENT, self._item(EventType.WARNING, payload, None))

    async def there(
        self, direction: Direction, index: int, count: int, file: str, size: int, how: str
    ) -> None:
        """One file is where it goes. ``how``: fetched, cached, sent."""
        await self._progress(direction, index, count, file, size, size, f"{size_text(size)}, {how}")

    @asynccontextmanager
    async def shown(
        self,
        direction: Direction,
        position: Callable[[], tuple[int, int]],
        file: str,
        meter: Meter,
        size: int,
    ) -> AsyncIterator[None]:
        """While it lasts, how far the file is, at most every two seconds. ``position``: its number, of how many."""
        showing = asyncio.create_task(self._show(direction, position, file, meter, size))
        try:
            yield
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)

    async def _show(
        self,
        direction: Direction,
        position: Callable[[], tuple[int, int]],
        file: str,
        meter: Meter,
        size: int,
    ) -> None:
        told = -1
        while True:
            await self._clock.delay(SHOW_EVERY_S)
            done = min(meter.done_bytes, size)
            if done != told:
                told = done
                index, count = position()
                text = f"{size_text(done)} of {size_text(size)}"
                await self._progress(direction, index, count, file, done, size, text)

    async def _progress(
        self, direction: Direction, index: int, count: int, file: str, done: int, total: int, text: str
    ) -> None:
        await self.warn(
            WarningKind.TRANSFER_PROGRESS,
            f"{_DOING[direction]} {index}/{count}: {file} ({text})",
            direction=direction.value,
            file=file,
            index=index,
            bytes_done=done,
            bytes_total=total,
            count=count,
        )

    def _item(self, type_: EventType, payload: Mapping[str, Any], ts: int | None) -> bytes:
        at = ts if ts is not None else int(self._clock.now().timestamp() * 1000)
        return item(ItemKind.EVENT, dict(payload), type=type_.value, ts=at)
