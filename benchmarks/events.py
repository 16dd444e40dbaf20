"""Events from the text of a frame to committed and acknowledged, beside bare inserts of the same rows."""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codefyui_core.wire import codec
from codefyui_core.wire.limits import BATCH_ITEMS
from codefyui_core.wire.messages import AckEntry, Assign, AttemptKey, Items

from . import raw_inserts
from .fold_room import WORKER, FoldRoom
from .measure import Aim, Row, in_turns
from .plan import Effort
from .whole_way import whole_way

AIM = 25_000
"""Events a second."""
AIM_OF_BASELINE = 0.5


def rows(effort: Effort) -> list[Row]:
    return [*(_row(effort, size) for size in (BATCH_ITEMS, 100)), whole_way(effort)]


def _row(effort: Effort, size: int) -> Row:
    count = effort.choose(20_000, 1_000)
    folder = effort.folder / f"batches-of-{size}"
    folder.mkdir()
    with asyncio.Runner() as runner:
        stream = Stream(runner.run(FoldRoom.open(folder)), runner)
        stream.accept()
        stream.send(count, size)
        database = raw_inserts.empty_copy(stream.room.file, folder / "raw.db")
        batches = raw_inserts.batches(stream.room.file, stream.room.assign.run_id, 1, count, size)
        raw = raw_inserts.Rounds(database, batches, count)
        fold, bare = in_turns(effort.choose(9, 2), lambda: stream.send(count, size), raw.insert)
        database.close()
        runner.run(stream.room.close())
    row = Row(
        benchmark="events",
        figure=f"frames into the database, {size} a batch",
        unit="events/s",
        samples=[count / seconds for seconds in fold],
        baseline="bare inserts of the same rows",
        baseline_samples=[count / seconds for seconds in bare],
    )
    return row.aiming(*_aims(row)) if size == BATCH_ITEMS else row


def _aims(row: Row) -> Iterator[Aim]:
    yield Aim(text=f"{AIM:,} a second", reached=f"{row.median:,.0f}", met=row.median >= AIM)
    part = row.ratio
    yield Aim(text="half of bare inserts", reached=f"{part:.0%}", met=part >= AIM_OF_BASELINE)


@dataclass(slots=True)
class Stream:
    """What the worker sends, in order."""

    room: FoldRoom
    runner: asyncio.Runner
    last: int = 0

    @property
    def _assign(self) -> Assign:
        return self.room.assign

    def accept(self) -> None:
        payload = {"incarnation": "1" * 32, "devices": ["cpu"]}
        self.runner.run(
            self._take(self._frame([json.dumps({"kind": "accepted", "payload": payload}).encode()]))
        )
        self.last = 1

    def send(self, count: int, size: int) -> float:
        """Seconds until the last of ``count`` events is acknowledged, batch after batch, as for one line."""
        frames = []
        for _ in range(count // size):
            frames.append(self._frame([event(self.last + 1 + index) for index in range(size)]))
            self.last += size
        return self.runner.run(self._timed(frames))

    def _frame(self, items: Sequence[bytes]) -> str:
        key = AttemptKey(run_id=self._assign.run_id, attempt=self._assign.attempt)
        return codec.items_frame(key, self._assign.lease, self.last + 1, items).decode()

    async def _timed(self, frames: Sequence[str]) -> float:
        began = time.perf_counter()
        for frame in frames:
            await self._take(frame)
        return time.perf_counter() - began

    async def _take(self, frame: str) -> None:
        message = codec.decode(frame, codec.FROM_AGENT)
        assert isinstance(message, Items)
        answer = await self.room.service.items(WORKER, message)
        assert isinstance(answer, AckEntry)
        assert answer.seq == message.first + len(message.items) - 1


def event(seq: int) -> bytes:
    """The mix of a training loop that reports as often as it can: of four, two metrics, a log line, a status."""
    match seq % 4:
        case 0:
            payload = {
                "node_id": "train",
                "stream": "node",
                "level": "info",
                "lines": [f"step {seq}: loss 0.1234"],
            }
            return _item("log", payload)
        case 1:
            progress = {"epoch": seq // 1000, "step": seq, "loss": 0.1234}
            outputs = [{"output_kind": "progress", "progress": progress}]
            return _item("node_status", {"node_id": "train", "status": "progress", "outputs": outputs})
    point = {"name": "loss", "value": 0.1234 + seq * 1e-6, "step": seq, "node_id": "train"}
    return _item("metric", {"points": [point]})


def _item(type_name: str, payload: object) -> bytes:
    said = {"kind": "event", "type": type_name, "payload": payload, "ts": 1_790_000_000_000}
    return json.dumps(said, separators=(",", ":")).encode()
