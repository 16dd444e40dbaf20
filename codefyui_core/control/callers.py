"""Who may call a worker's routes: the credential's worker, and the attempt that it holds."""

from typing import TYPE_CHECKING

from codefyui_core.errors import CodefyError
from codefyui_core.plugin.views import AttemptView, WorkerView

if TYPE_CHECKING:
    from .plane import ControlPlane


class PlaneCallers:
    """Implements ``WorkerAuth`` of the routes' gate."""

    def __init__(self, plane: "ControlPlane") -> None:
        self._plane = plane

    async def authenticate_view(self, credential: str) -> WorkerView:
        return await self._plane.workers.authenticate_view(credential)

    async def attempt_for(self, worker: WorkerView, run_id: str, fence: str | None) -> AttemptView:
        """The attempt that ``fence`` (``<number>.<lease>``) names, else the worker's only live one of the run."""
        attempt = await self._plane.runs.attempt_of(run_id)
        if fence is not None:
            number, _, lease = fence.partition(".")
            if (
                attempt is None
                or str(attempt.number) != number
                or not self._plane.runs.lease_fits(run_id, lease)
            ):
                raise CodefyError(f"Attempt {number} of run {run_id} is over.", code="run.attempt_over")
        if attempt is None or attempt.worker_id != worker.id:
            raise CodefyError(f"Run {run_id} isn't executing on worker {worker.name}.", code="run.not_yours")
        return attempt
