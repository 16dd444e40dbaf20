"""What a stop of this server would do to how many runs, in numbers and in words. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from codefyui_core.plugin.values import JsonObject

from .board import Board
from .decisions import EXECUTING

SECRETS = "as their secret values are only in memory"
NOT_DURABLE = "as CODEFYUI_RUN_QUEUE_DURABLE is off"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtStop:
    """Runs that aren't over."""

    own: int
    """Executing on the server itself."""
    on_workers: int
    waiting: int
    waiting_with_secrets: int
    """Of those that wait: they can't be kept."""
    durable: bool
    """The queue outlives the server."""

    def row(self) -> JsonObject:
        """For the API: the numbers, and a line for whatever there is some of."""
        return {**asdict(self), "if_kept": [*self.lines(keep=True)], "if_stopped": [*self.lines(keep=False)]}

    def lines(self, *, keep: bool) -> Sequence[str]:
        """``keep``: runs on workers are left executing."""
        return list(self._lines(keep=keep))

    def _lines(self, *, keep: bool) -> Iterator[str]:
        if self.on_workers:
            verb = "go on, and the next start takes them over" if keep else "are stopped"
            yield f"{_runs(self.on_workers)} on workers {verb}."
        if self.own:
            yield f"{_runs(self.own)} of this server end interrupted."
        if self.waiting and not self.durable:
            yield f"{_runs(self.waiting)} in the queue end interrupted, {NOT_DURABLE}."
            return
        if stay := self.waiting - self.waiting_with_secrets:
            yield f"{_runs(stay)} in the queue stay there."
        if self.waiting_with_secrets:
            yield f"{_runs(self.waiting_with_secrets)} in the queue end interrupted, {SECRETS}."


def at_stop(board: Board, *, durable: bool) -> AtStop:
    """As of the last commit."""
    executing = [record for record in board.flights.values() if record.state in EXECUTING]
    waiting = [request for run_id, request in board.requests.items() if run_id not in board.flights]
    return AtStop(
        own=sum(record.now.worker_id is None for record in executing),
        on_workers=sum(record.now.worker_id is not None for record in executing),
        waiting=len(waiting),
        waiting_with_secrets=sum(request.has_secrets for request in waiting),
        durable=durable,
    )


def _runs(number: int) -> str:
    return f"{number} run(s)"
