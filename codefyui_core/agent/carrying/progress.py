"""How far the transfers of a run are, as events of its log."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from codefyui_core.agent.stream import Stream, item
from codefyui_core.clocks import AttentiveClock
from codefyui_core.runs.events import EventType, WarningKind, warning_payload
from codefyui_core.wire.limits import EVENT_BYTES
from codefyui_core.wire.messages import ItemKind

from .meter import Meter

SHOW_EVERY_S = 2.0
TELL_EVERY_S = 1.0
FEW = 20
LARGE_BYTES = 8 << 20
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


@dataclass(slots=True)
class Pace:
    """Which files that are through are told of: each of few and each large one, of many small ones one a second,
    the first and the last.
    """

    told_at: float | None = None

    def tells(self, now: float, index: int, count: int, size: int) -> bool:
        """``now``: seconds of one clock."""
        due = self.told_at is None or now - self.told_at >= TELL_EVERY_S
        if not (due or count <= FEW or size >= LARGE_BYTES or index >= count):
            return False
        self.told_at = now
        return True


@dataclass(slots=True)
class _Shown:
    direction: Direction
    position: Callable[[], tuple[int, int]]
    file: str
    meter: Meter
    size: int
    told: int = -1


class Reports:
    """Writes into the stream of one attempt."""

    def __init__(self, stream: Stream, clock: AttentiveClock) -> None:
        self._stream = stream
        self._clock = clock
        self._pace = Pace()
        self._shown: dict[int, _Shown] = {}
        self._n_shown = 0
        self._showing: asyncio.Task[None] | None = None

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

    async def sent(self, index: int, count: int, file: str, size: int) -> None:
        """The same of an output, unless it is one of so many small ones that a line each would tell less."""
        if self._pace.tells(self._clock.monotonic(), index, count, size):
            await self.there(Direction.OUT, index, count, file, size, "sent")

    @contextmanager
    def shown(
        self,
        direction: Direction,
        position: Callable[[], tuple[int, int]],
        file: str,
        meter: Meter,
        size: int,
    ) -> Iterator[None]:
        """While it lasts, how far the file is, at most every two seconds. ``position``: its number, of how many."""
        self._n_shown += 1
        number = self._n_shown
        self._shown[number] = _Shown(direction, position, file, meter, size)
        if self._showing is None:
            self._showing = asyncio.create_task(self._show())
        try:
            yield
        finally:
            del self._shown[number]

    async def aclose(self) -> None:
        """Nothing is shown any more."""
        if self._showing is not None:
            self._showing.cancel()
            await asyncio.gather(self._showing, return_exceptions=True)

    async def _show(self) -> None:
        """While there is something. A file is told of from the second look on: most are through before."""
        seen: set[int] = set()
        try:
            while self._shown:
                await self._clock.delay(SHOW_EVERY_S)
                for number in sorted(seen & self._shown.keys()):
                    if (one := self._shown.get(number)) is not None:
                        await self._tell(one)
                seen = set(self._shown)
        finally:
            self._showing = None

    async def _tell(self, one: "_Shown") -> None:
        done = min(one.meter.done_bytes, one.size)
        if done != one.told:
            one.told = done
            index, count = one.position()
            text = f"{size_text(done)} of {size_text(one.size)}"
            await self._progress(one.direction, index, count, one.file, done, one.size, text)

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
