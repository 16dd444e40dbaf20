"""Submitting, cancelling, placing and listing while many runs wait, beside the same while a hundred do."""

import asyncio
import gc
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from codefyui_core.plugin.values import JsonObject

from .measure import Aim, Row, in_turns
from .plan import Effort
from .queue_room import QueueRoom

MANY, FEW = 100_000, 100
AIM_MS = 5.0
AIMED = {"submit", "cancel", "pick"}
STEPS = ("submit", "cancel", "pick", "turn", "list")


def one_line(count: int) -> Iterator[JsonObject]:
    """All need the same, in one line."""
    return ({} for _ in range(count))


def many_lines(count: int) -> Iterator[JsonObject]:
    """A thousand lines of workers that aren't there, and as many runs for the one that is."""
    for number in range(count):
        name = f"worker-{number // 2 % 1000}"
        lines: JsonObject = {
            "target": json.dumps({"worker": name}),
            "queue_key": f"{name}/cuda",
            "worker_name": name,
        }
        yield lines if number % 2 else {}


def other_files_each(count: int) -> Iterator[JsonObject]:
    """One line in which each run reads a file of its own."""
    for number in range(count):
        use: JsonObject = {
            "node_id": "node",
            "node_type": "TextInput",
            "param": "path",
            "role": "reads",
            "source": "bundled",
            "family": None,
            "value": f"data/samples/{number}.csv",
        }
        yield {"files": json.dumps({"uses": [use]})}


WAITING = {"one line": one_line, "1,000 lines": many_lines, "other files each": other_files_each}


def rows(effort: Effort) -> list[Row]:
    found: list[Row] = []
    for name, waiting in WAITING.items():
        folder = effort.folder / name.replace(" ", "-").replace(",", "")
        folder.mkdir()
        found += _rows(effort, folder, name, waiting)
    return found


def _rows(
    effort: Effort, folder: Path, name: str, waiting: Callable[[int], Iterator[JsonObject]]
) -> Iterator[Row]:
    with asyncio.Runner() as runner:
        many = Bench(runner, folder / "many", list(waiting(effort.choose(MANY, 200))))
        few = Bench(runner, folder / "few", list(waiting(FEW)))
        gc.freeze()  # as a server does once it listens
        for step in STEPS:
            turns = effort.choose(200 if step not in {"turn", "list"} else 20, 3)
            samples, baseline = in_turns(turns, many.step(step), few.step(step))
            row = Row(
                benchmark="queue",
                figure=f"{step}, {effort.choose(MANY, 200):,} wait, {name}",
                unit="ms",
                samples=samples,
                baseline=f"{FEW} wait",
                baseline_samples=baseline,
            )
            yield row.aiming(_aim(row)) if step in AIMED else row
        many.close()
        few.close()


def _aim(row: Row) -> Aim:
    """99 of 100 take at most ``high``."""
    high = statistics.quantiles(row.samples, n=100, method="inclusive")[98]
    reached = f"{row.median:.2f} ms, of 100 the slowest but one {high:.2f} ms"
    return Aim(text=f"{row.figure}: under {AIM_MS:g} ms", reached=reached, met=row.median < AIM_MS)


class Bench:
    """One server, and what is timed on it."""

    def __init__(self, runner: asyncio.Runner, folder: Path, waiting: Sequence[JsonObject]) -> None:
        self._runner = runner
        self._room = runner.run(QueueRoom.open(folder, waiting))
        self._executing = runner.run(self._room.next_assignment())
        self._room.waiting.remove(self._executing.run_id)

    def step(self, name: str) -> Callable[[], float]:
        """Milliseconds that one step takes."""
        work: Callable[[], Awaitable[float]] = getattr(self, f"_{name}")
        return lambda: self._runner.run(_settled(work))

    async def _submit(self) -> float:
        began = time.perf_counter()
        run_id = await self._room.submit()
        took_ms = _since(began)
        await self._room.service.cancel(run_id)
        return took_ms

    async def _cancel(self) -> float:
        """One from the middle of its line."""
        run_id = self._room.waiting.pop(len(self._room.waiting) // 2)
        began = time.perf_counter()
        await self._room.service.cancel(run_id)
        took_ms = _since(began)
        await self._refill()
        return took_ms

    async def _pick(self) -> float:
        """Looking at the lines because a slot came free: choosing the next run for it."""
        self._room.looking_ms.clear()
        await self._turn()
        return max(self._room.looking_ms)

    async def _turn(self) -> float:
        """From the last news of a run to the assignment of the next: two commits, and reading the document."""
        began = time.perf_counter()
        await self._room.finish(self._executing)
        self._executing = await self._room.next_assignment()
        took_ms = _since(began)
        self._room.waiting.remove(self._executing.run_id)
        await self._refill()
        return took_ms

    async def _refill(self) -> None:
        """As many wait at the last step as at the first."""
        self._room.waiting.append(await self._room.submit())

    async def _list(self) -> float:
        """A page of 50 with positions and reasons."""
        began = time.perf_counter()
        await self._room.service.list(["queued"], limit=50)
        return _since(began)

    def close(self) -> None:
        self._runner.run(self._room.close())


async def _settled(work: Callable[[], Awaitable[float]]) -> float:
    """What the step before left to be done isn't counted here."""
    for _ in range(20):
        await asyncio.sleep(0)
    return await work()


def _since(began: float) -> float:
    return (time.perf_counter() - began) * 1000
