"""What runs of a graph took of a card at most, read from the newest that succeeded."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import select

from codefyui_core.control.db.database import Database
from codefyui_core.control.db.outages import log_failure
from codefyui_core.control.db.tables import runs
from codefyui_core.plugin.views import RunStatus
from codefyui_core.runs.steps import Change

from .board import Board
from .tasks import Tasks

MOST = 10_000
"""Graphs that are remembered; the one that came first goes first."""


class Peaks:
    """Looks a graph up when it is asked for first, and follows what ends."""

    def __init__(
        self, *, db: Database, board: Board, tasks: Tasks, log: logging.Logger, found: Callable[[], None]
    ) -> None:
        """``found``: called when a graph was looked up."""
        self._db = db
        self._board = board
        self._tasks = tasks
        self._log = log
        self._found = found
        self._known: dict[str, int | None] = {}
        self._asked: set[str] = set()

    def knows(self, graph_hash: str) -> bool:
        """False: it is being looked up."""
        if graph_hash in self._known:
            return True
        if graph_hash not in self._asked:
            self._asked.add(graph_hash)
            self._tasks.start(self._look_up(graph_hash), name="peak memory of a graph")
        return False

    def of(self, graph_hash: str) -> int | None:
        """Bytes of the card that took most; None: no run of it has succeeded on a card."""
        return self._known.get(graph_hash)

    def committed(self, changes: Sequence[Change], _deleted: Sequence[str]) -> None:
        """Told by the writer, before the board forgets what ended."""
        for change in changes:
            request = self._board.requests.get(change.after.id)
            if change.after.status is RunStatus.SUCCEEDED and request is not None and request.graph_hash:
                peak = device_peak(change.after.execution_facts)
                if peak is not None:
                    self._keep(request.graph_hash, peak)

    async def _look_up(self, graph_hash: str) -> None:
        newest = (
            select(runs.c.execution_facts)
            .where(runs.c.graph_hash == graph_hash, runs.c.status == RunStatus.SUCCEEDED.value)
            .order_by(runs.c.queue_seq.desc())
            .limit(1)
        )
        peak = None
        try:
            async with self._db.read() as connection:
                peak = device_peak(await connection.scalar(newest))
        except Exception as error:
            log_failure(self._log, error, "what a graph needs can't be looked up; it counts as unknown")
        if graph_hash not in self._known:
            self._keep(graph_hash, peak)
        self._asked.discard(graph_hash)
        self._found()

    def _keep(self, graph_hash: str, peak: int | None) -> None:
        self._known.pop(graph_hash, None)
        self._known[graph_hash] = peak
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]


def device_peak(facts: Mapping[str, Any] | None) -> int | None:
    """Of ``execution_facts``: bytes that tensors took at most on one card; None when no card was used."""
    told = (facts or {}).get("peak_memory")
    if not isinstance(told, Mapping):
        return None
    peaks = [value for key, value in told.items() if key.startswith("cuda:") and isinstance(value, int)]
    return max(peaks, default=None)
