"""Why a run waits, in words."""

from collections.abc import Callable, Sequence

from codefyui_core.runs.options import PoolTarget, WorkerTarget
from codefyui_core.runs.queue import Candidate, Reason, Room, Waiting

from .board import Board, Needs
from .desk import WorkerDirectory
from .places import by_name

STAGING = Reason(text="preparing its files", code="queue.staging")
LOADING = Reason(text="waits until the node definitions are read", code="queue.catalog")
STOPPING = Reason(text="the server is stopping", code="queue.stopping")


class Reasons:
    """Answers from memory, for one run at a time."""

    def __init__(
        self,
        board: Board,
        workers: WorkerDirectory,
        *,
        stopped: Callable[[], Reason | None],
        candidates: Callable[[Waiting], Sequence[Candidate]],
        room: Callable[[], Room],
    ) -> None:
        """``candidates``: where a run could go, free or not."""
        self._board = board
        self._workers = workers
        self._stopped = stopped
        self._candidates = candidates
        self._room = room
        self.notes: dict[str, Reason] = {}
        """What was said of single runs, such as a worker's refusal."""

    def of(self, run_id: str) -> Reason | None:
        """None for a run that doesn't wait."""
        if run_id in self._board.holds:
            return STAGING
        waiting = self._board.lines.get(run_id)
        if waiting is None:
            return None
        if run_id in self.notes:
            return self.notes[run_id]
        return self._stopped() or self._reason(waiting)

    def _reason(self, waiting: Waiting) -> Reason:
        fitting = self._candidates(waiting)
        if not fitting:
            return self._unfit(waiting)
        ahead = (self._board.lines.position(waiting.run_id) or 1) - 1
        if ahead:
            runs = "1 run" if ahead == 1 else f"{ahead} runs"
            return Reason(text=f"waits behind {runs} for {waiting.line}", code="queue.behind")
        busy = Reason(text=f"waits for a free slot on {waiting.line}", code="queue.slot_busy")
        return self._room().shortage(waiting, fitting) or busy

    def _unfit(self, waiting: Waiting) -> Reason:
        needs = waiting.needs
        assert isinstance(needs, Needs)
        match needs.target:
            case PoolTarget():
                text = f"waits for a one-shot worker that offers {needs.device}"
                return Reason(text=text, code="queue.one_shot")
            case WorkerTarget(worker=name):
                return self._named(name)
        text = f"waits for a connected worker that offers {needs.device} and can take it"
        return Reason(text=text, code="queue.no_worker")

    def _named(self, name: str) -> Reason:
        link = by_name(self._workers, name)
        if link is None:
            return Reason(text=f"worker {name} is offline", code="queue.worker_offline")
        if link.view.disabled or link.view.drained:
            word = "disabled" if link.view.disabled else "drained"
            return Reason(text=f"worker {name} is {word}", code=f"queue.worker_{word}")
        if not link.ready:
            return Reason(text=f"worker {name} is getting ready", code="queue.worker_starting")
        if not link.accepting:
            return Reason(text=f"worker {name} takes no runs now", code="queue.worker_not_accepting")
        return Reason(text=f"worker {name} can't take it now", code="queue.worker_unfit")
