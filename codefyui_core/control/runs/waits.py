"""How long a run may wait for a one-shot worker: counted in attentive seconds, saved each minute."""

from sqlalchemy import update

from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.db.tables import runs
from codefyui_core.errors import CodefyError
from codefyui_core.runs.options import PoolTarget, WorkerTarget
from codefyui_core.runs.status import Cause

from .board import Board, Needs
from .decisions import drop, failed
from .desk import WorkerDirectory
from .unit import Unit
from .writer import Writer

LOOKS = 20
"""Within a timeout, so that none is late by more than a part of it."""
SHORTEST_LOOK_S = 1.0
LONGEST_LOOK_S = 5.0
SAVE_S = 60.0


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
        self._seen: dict[str, float] = {}
        """When a run was counted last."""

    async def run(self) -> None:
        """Until cancelled."""
        if self._timeout_s <= 0:
            return
        look_s = min(LONGEST_LOOK_S, max(SHORTEST_LOOK_S, self._timeout_s / LOOKS))
        saved_at = self._clock.monotonic()
        while True:
            await self._clock.sleep(look_s)
            try:
                await self.look()
                if self._clock.monotonic() - saved_at >= SAVE_S:
                    saved_at = self._clock.monotonic()
                    await self._save()
            except CodefyError:
                continue  # the database is away: the next look counts on

    async def look(self) -> None:
        """Count, and fail what waited long enough. A run counts from the first look that finds it."""
        now = self._clock.monotonic()
        timed = [run_id for line in await self._lines() for run_id in self._board.lines.in_order(line)]
        for run_id in timed:
            since = now - self._seen.get(run_id, now)
            self.waited[run_id] = self.waited.get(run_id, 0.0) + since
        self._seen = dict.fromkeys(timed, now)
        for run_id in [run_id for run_id in self.waited if not self._is_waiting(run_id)]:
            del self.waited[run_id]
        text = f"no one-shot worker took the run within {self._timeout_s:g} s"
        for run_id in [run_id for run_id in timed if self.waited[run_id] >= self._timeout_s]:
            await self._writer.run(drop(run_id, failed(text, Cause.TIMEOUT)))

    def _is_waiting(self, run_id: str) -> bool:
        """Also while it is being placed, which may come to nothing."""
        return run_id in self._board.lines or run_id in self._board.holds

    async def _lines(self) -> list[str]:
        """Lines whose runs wait for a one-shot worker: the pool's, and those of workers that were one."""
        return [line for line in self._board.lines.counts() if await self._is_timed(line)]

    async def _is_timed(self, line: str) -> bool:
        """All runs of a line have the same target."""
        first = next(iter(self._board.lines.in_order(line)), None)
        waiting = None if first is None else self._board.lines.get(first)
        needs = None if waiting is None else waiting.needs
        target = needs.target if isinstance(needs, Needs) else None
        if isinstance(target, WorkerTarget):
            return await self._is_one_shot(target.worker)
        return isinstance(target, PoolTarget)

    async def _is_one_shot(self, name: str) -> bool:
        """An instance always is one, also of a worker whose own agent stays."""
        if "." in name:
            return True
        known = await self._workers.by_name(name)
        return known is not None and known.view.one_shot

    async def _save(self) -> None:
        waited = dict(self.waited)

        async def decide(unit: Unit) -> None:
            for run_id, seconds in waited.items():
                values = {"queued_wait_s": seconds}
                await unit.connection.execute(update(runs).where(runs.c.id == run_id).values(**values))

        if waited:
            await self._writer.run(decide)
