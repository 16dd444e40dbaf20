"""How long a run may wait for a one-shot worker: counted in attentive seconds, saved each minute."""

from sqlalchemy import update

from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.db.tables import runs
from codefyui_core.errors import CodefyError
from codefyui_core.runs.options import WorkerTarget
from codefyui_core.runs.status import Cause

from .board import Board, Needs
from .decisions import drop, failed
from .desk import WorkerDirectory
from .submit import ONE_SHOT
from .unit import Unit
from .writer import Writer

LOOK_S = 5.0
SAVE_EVERY = 12
"""Looks between two saves."""


class Waits:
    """``run`` it beside the dispatcher. ``timeout_s`` 0: for ever."""

    def __init__(
        self,
        *,
        board: Board,
        workers: WorkerDirectory,
        writer: Writer,
        clock: AttentiveClock,
        timeout_s: float,
    ) -> None:
        self._board = board
        self._workers = workers
        self._writer = writer
        self._clock = clock
        self._timeout_s = timeout_s
        self.waited: dict[str, float] = {}
        """Seconds, by run."""

    async def run(self) -> None:
        """Until cancelled."""
        if self._timeout_s <= 0:
            return
        looks = 0
        while True:
            before = self._clock.monotonic()
            await self._clock.sleep(LOOK_S)
            looks += 1
            try:
                await self.look(self._clock.monotonic() - before)
                if looks % SAVE_EVERY == 0:
                    await self._save()
            except CodefyError:
                continue

    async def look(self, elapsed_s: float) -> None:
        """Count, and fail what waited long enough."""
        timed = [run_id for line in await self._lines() for run_id in self._board.lines.in_order(line)]
        for run_id in timed:
            self.waited[run_id] = self.waited.get(run_id, 0.0) + elapsed_s
        for run_id in [run_id for run_id in self.waited if run_id not in self._board.lines]:
            del self.waited[run_id]
        text = f"no one-shot worker took the run within {self._timeout_s:g} s"
        for run_id in [run_id for run_id in timed if self.waited[run_id] >= self._timeout_s]:
            await self._writer.run(drop(run_id, failed(text, Cause.TIMEOUT)))

    async def _lines(self) -> list[str]:
        """Lines whose runs wait for a one-shot worker: the pool's, and those of workers that were one."""
        found = []
        for line in self._board.lines.counts():
            name = self._named(line)
            if line.startswith(f"{ONE_SHOT}/") or (name is not None and await self._is_one_shot(name)):
                found.append(line)
        return found

    def _named(self, line: str) -> str | None:
        first = next(iter(self._board.lines.in_order(line)), None)
        waiting = None if first is None else self._board.lines.get(first)
        needs = None if waiting is None else waiting.needs
        if isinstance(needs, Needs) and isinstance(needs.target, WorkerTarget):
            return needs.target.worker
        return None

    async def _is_one_shot(self, name: str) -> bool:
        known = await self._workers.by_name(name)
        return "." in name or (known is not None and known.view.one_shot)

    async def _save(self) -> None:
        waited = dict(self.waited)

        async def decide(unit: Unit) -> None:
            for run_id, seconds in waited.items():
                values = {"queued_wait_s": seconds}
                await unit.connection.execute(update(runs).where(runs.c.id == run_id).values(**values))

        if waited:
            await self._writer.run(decide)
