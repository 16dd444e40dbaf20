"""The stream of one attempt on the agent's disk: appended, synced in groups, read again, trimmed by segments.

No asyncio here. ``append`` is a write into the page cache and may be called on the event loop; ``Sync.run``
and ``read`` wait for the disk and belong in a thread.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codefyui_core.wire.limits import MIB
from codefyui_core.wire.messages import ItemKind

from .disk import Disk
from .records import HEADER, encode_record, scan

SEGMENT_BYTES = 4 * MIB
TAIL_BYTES = 1 * MIB
"""The newest records, kept in memory so that sending them reads no disk."""
MUST_SYNC = frozenset({ItemKind.ACCEPTED, ItemKind.EXITED, ItemKind.END})
"""Kinds that are on the disk before they are sent. ``artifact`` events, too: the appender says so."""


@dataclass(slots=True)
class Segment:
    """One file: its name is its first seq."""

    path: Path
    first: int
    last: int
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    """What one group sync makes durable. Prepared on the loop, run in a thread, then given back."""

    upto: int
    disk: Disk
    descriptors: tuple[int, ...]
    folder: Path | None

    def run(self) -> None:
        for descriptor in self.descriptors:
            self.disk.sync(descriptor)
        if self.folder is not None:
            self.disk.sync_folder(self.folder)


@dataclass(frozen=True, slots=True)
class Gap:
    """Numbers that were appended and can't be read any more."""

    first: int
    last: int


@dataclass(slots=True)
class _Files:
    """What is open for writing, and what isn't synced yet."""

    current: int | None = None
    full: list[int] = field(default_factory=list)
    new_names: bool = False
    syncing: bool = False


class Spool:
    """An attempt's records in one folder. One process writes it."""

    def __init__(self, folder: Path, *, disk: Disk | None = None, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Opens what is there: cuts a torn tail, finds the gaps. Blocking."""
        self.folder = folder
        self._disk = disk or Disk()
        self._segment_bytes = segment_bytes
        self._files = _Files()
        self._segments: list[Segment] = []
        self.gaps: list[Gap] = []
        self.kinds: set[ItemKind] = set()
        """Kinds that were found when it was opened."""
        self._tail: deque[tuple[int, bytes]] = deque()
        self._tail_bytes = 0
        self._offsets: dict[tuple[Path, int], int] = {}
        """Where the next read of a segment goes on."""
        self.last = 0
        """The highest number given."""
        self._must_sync: deque[int] = deque()
        self._open()
        self.durable = self.last

    # ------------------------------------------------------------ opening

    def _open(self) -> None:
        for path in sorted(self.folder.glob("[0-9]*.log")):
            self._open_segment(path)
        self.last = max(self.last, self._segments[-1].last if self._segments else 0)

    def _open_segment(self, path: Path) -> None:
        first = int(path.stem)
        after = self._segments[-1].last if self._segments else first - 1
        good_end = 0
        segment = Segment(path, first, after, 0)
        for record in scan(path.read_bytes(), after):
            if record.seq > segment.last + 1:
                self.gaps.append(Gap(segment.last + 1, record.seq - 1))
            segment.last, good_end = record.seq, record.end
            self.kinds.add(record.kind)
        if good_end == 0:
            self._disk.remove(path)
            return
        if good_end < path.stat().st_size:
            self._disk.cut(path, good_end)
        segment.size = good_end
        self._segments.append(segment)

    # ------------------------------------------------------------ what is known

    @property
    def first_kept(self) -> int:
        return self._segments[0].first if self._segments else self.last + 1

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return sum(segment.size for segment in self._segments)

    @property
    def unsynced(self) -> bool:
        return self.durable < self.last

    @property
    def sendable(self) -> int:
        """The highest number that may be sent now: what must be synced first holds back what follows it."""
        while self._must_sync and self._must_sync[0] <= self.durable:
            self._must_sync.popleft()
        return self._must_sync[0] - 1 if self._must_sync else self.last

    # ------------------------------------------------------------ writing

    def append(self, kind: ItemKind, payload: bytes, *, must_sync: bool = False) -> int:
        """The number that it got.

        Raises: OSError when the disk doesn't take it; nothing was given a number then.
        """
        seq = self.last + 1
        record = encode_record(seq, kind, payload)
        segment = self._room_for(len(record), seq)
        assert self._files.current is not None
        self._disk.write(self._files.current, record)
        segment.last, segment.size, self.last = seq, segment.size + len(record), seq
        if must_sync or kind in MUST_SYNC:
            self._must_sync.append(seq)
        self._remember(seq, payload)
        return seq

    def continue_at(self, seq: int) -> None:
        """Give numbers from ``seq`` on: the control plane has more than this disk kept (R5)."""
        if seq > self.last + 1:
            self._finish_segment()
            self.last = self.durable = seq - 1

    def _room_for(self, size: int, seq: int) -> Segment:
        current = self._segments[-1] if self._segments and self._files.current is not None else None
        if current is not None and current.size + size <= self._segment_bytes:
            return current
        path = self.folder / f"{seq:010d}.log"
        descriptor = self._disk.open(path)
        self._finish_segment()
        self._files.current, self._files.new_names = descriptor, True
        segment = Segment(path, seq, seq - 1, 0)
        self._segments.append(segment)
        return segment

    def _finish_segment(self) -> None:
        if self._files.current is not None:
            self._files.full.append(self._files.current)
            self._files.current = None
        if self._segments and self._segments[-1].size == 0:
            self._disk.remove(self._segments.pop().path)

    def _remember(self, seq: int, payload: bytes) -> None:
        self._tail.append((seq, payload))
        self._tail_bytes += len(payload)
        while self._tail_bytes > TAIL_BYTES and len(self._tail) > 1:
            self._tail_bytes -= len(self._tail.popleft()[1])

    # ------------------------------------------------------------ syncing

    def sync(self) -> Sync | None:
        """What is to be synced now; None while another sync runs, or when nothing is new."""
        if self._files.syncing or self.durable >= self.last:
            return None
        self._files.syncing = True
        current = () if self._files.current is None else (self._files.current,)
        folder = self.folder if self._files.new_names else None
        return Sync(self.last, self._disk, (*self._files.full, *current), folder)

    def synced(self, sync: Sync, *, ok: bool = True) -> None:
        """It ran. What it failed to sync is tried again with the next."""
        self._files.syncing = False
        if not ok:
            return
        self.durable = max(self.durable, sync.upto)
        for descriptor in [one for one in self._files.full if one in sync.descriptors]:
            self._files.full.remove(descriptor)
            self._disk.close(descriptor)
        self._files.new_names = False

    # ------------------------------------------------------------ reading

    def read(self, first: int, *, limit_bytes: int, limit_items: int) -> Sequence[bytes]:
        """The payloads from number ``first`` on, without a break in the numbers, up to ``sendable``; at least
        one if it can be read. Blocking, unless they are the newest.
        """
        if self.in_memory(first):
            return self.read_memory(first, limit_bytes=limit_bytes, limit_items=limit_items)
        return self.disk_read(first, limit_bytes=limit_bytes, limit_items=limit_items)()

    def in_memory(self, first: int) -> bool:
        return bool(self._tail) and self._tail[0][0] <= first

    def read_memory(self, first: int, *, limit_bytes: int, limit_items: int) -> Sequence[bytes]:
        upto = min(self.sendable, first + limit_items - 1)
        return _within([payload for seq, payload in self._tail if first <= seq <= upto], limit_bytes)

    def disk_read(self, first: int, *, limit_bytes: int, limit_items: int) -> Callable[[], Sequence[bytes]]:
        """The same from the disk, to be called in a thread; empty when it was trimmed meanwhile."""
        upto = min(self.sendable, first + limit_items - 1)
        segment = next((one for one in self._segments if one.first <= first <= one.last), None)
        if segment is None:
            return tuple
        path, offset = segment.path, self._offsets.pop((segment.path, first), 0)
        chunk = limit_bytes + limit_items * HEADER.size

        def read() -> Sequence[bytes]:
            found, end = _read_segment(path, offset, first, upto, limit_bytes, chunk)
            self._offsets[path, first + len(found)] = end
            return found

        return read

    def look_again(self, seq: int) -> None:
        """Nothing could be read at ``seq`` though it was written: the disk changed under us. What can't be
        read up to the next good record becomes a gap. Blocking.
        """
        segment = next((one for one in self._segments if one.first <= seq <= one.last), None)
        if segment is None or self.gap(seq) is not None:
            return
        try:
            data = segment.path.read_bytes()
        except OSError:
            data = b""
        following = next(scan(data, seq - 1), None)
        if following is None or following.seq > seq:
            self.gaps.append(Gap(seq, segment.last if following is None else following.seq - 1))

    def gap(self, seq: int) -> Gap | None:
        """The unreadable range that ``seq`` is in, from ``seq`` on. Also what was trimmed or never kept."""
        if seq < self.first_kept:
            return Gap(seq, self.first_kept - 1)
        for gap in self.gaps:
            if gap.first <= seq <= gap.last:
                return Gap(seq, gap.last)
        return self._between_segments(seq)

    def _between_segments(self, seq: int) -> Gap | None:
        if seq > self.last or any(one.first <= seq <= one.last for one in self._segments):
            return None
        following = [one.first for one in self._segments if one.first > seq]
        return Gap(seq, min(following) - 1 if following else self.last)

    def find(self, kind: ItemKind) -> bytes | None:
        """The payload of the newest record of a kind. Blocking."""
        for segment in reversed(self._segments):
            for record in reversed(list(scan(segment.path.read_bytes(), segment.first - 1))):
                if record.kind is kind:
                    return record.payload
        return None

    def payloads(self, kind: ItemKind) -> Iterator[bytes]:
        """Of the records of a kind, in order. Blocking."""
        for segment in self._segments:
            for record in scan(segment.path.read_bytes(), segment.first - 1):
                if record.kind is kind:
                    yield record.payload

    # ------------------------------------------------------------ letting go

    def trim(self, position: int) -> None:
        """Everything up to ``position`` is recorded: delete the segments that hold nothing else. Idempotent."""
        while len(self._segments) > 1 and self._segments[0].last <= position:
            gone = self._segments.pop(0).path
            self._disk.remove(gone)
            self._offsets = {(path, seq): at for (path, seq), at in self._offsets.items() if path != gone}
        self.gaps = [gap for gap in self.gaps if gap.last > position]

    def close(self) -> None:
        for descriptor in [
            *self._files.full,
            *([self._files.current] if self._files.current is not None else []),
        ]:
            self._disk.close(descriptor)
        self._files = _Files()


def _read_segment(
    path: Path, offset: int, first: int, upto: int, limit_bytes: int, chunk: int
) -> tuple[list[bytes], int]:
    """Consecutive payloads from ``first`` on, and where the one behind them begins. ``chunk`` bytes are read at
    first: what a batch takes. All that is left is read when they hold nothing of it, because ``offset`` is far
    before it, or the records between are damaged or large.
    """
    for size in (chunk, -1):
        try:
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read(size)
        except FileNotFoundError:
            return [], 0
        found, end = _payloads(data, first, upto, limit_bytes)
        if found:
            return found, offset + end
    return [], 0


def _payloads(data: bytes, first: int, upto: int, limit_bytes: int) -> tuple[list[bytes], int]:
    found: list[bytes] = []
    total, end = 0, 0
    for record in scan(data, first - 1):
        total += len(record.payload) + 1
        if record.seq != first + len(found) or record.seq > upto or (found and total > limit_bytes):
            break
        found.append(record.payload)
        end = record.end
    return found, end


def _within(payloads: list[bytes], limit_bytes: int) -> Sequence[bytes]:
    total = 0
    for index, payload in enumerate(payloads):
        total += len(payload) + 1
        if total > limit_bytes and index > 0:
            return payloads[:index]
    return payloads
