"""Runs that one agent was started for (``--run-id``): may it have that run, and is it still to be had?"""

from sqlalchemy import update

from codefyui_core.control.db.tables import workers
from codefyui_core.runs.options import PoolTarget, WorkerTarget
from codefyui_core.runs.record import RunRecord

from .board import Board, Needs, Request
from .decisions import Decision
from .desk import Claim, WorkerDirectory, WorkerLink
from .places import has_types, worker_devices
from .unit import Unit


def claim_problem(board: Board, claim: Claim) -> str | None:
    """Why the agent can't have the run; None: it waits for it, or is its own already."""
    record = board.flights.get(claim.run_id)
    if record is not None and record.now.place == claim.place:
        return None
    if record is not None:
        return f"run {claim.run_id} was given to worker {record.worker_name} already"
    request = board.requests.get(claim.run_id)
    if request is None:
        return f"no run {claim.run_id} waits here: it is over, or there is none of that id"
    held = board.holds.get(claim.run_id)
    if held is not None and all(place != claim.place for place, _ in held):
        return f"run {claim.run_id} is being given to another worker"
    return _unfit(request, claim)


def _unfit(request: Request, claim: Claim) -> str | None:
    needs = request.needs
    match needs.target:
        case WorkerTarget(worker=name) if name.lower() != claim.name.lower():
            return f"run {claim.run_id} waits for worker {name}, not for {claim.name}"
        case WorkerTarget() | PoolTarget():
            pass
        case _:
            return (
                f"run {claim.run_id} waits for {needs.kind}; only runs whose target is the one-shot pool or "
                f"{claim.name} can be taken with --run-id"
            )
    if next(worker_devices(needs, claim.devices), None) is None:
        offered = ", ".join(claim.devices) or "nothing"
        return f"run {claim.run_id} needs {needs.device}, and this agent offers {offered}"
    return None


def noting_run(decision: Decision, worker_id: str) -> Decision:
    """T2 for a one-shot agent: its worker's entry says which run it took."""

    async def decide(unit: Unit) -> RunRecord | None:
        placed = await decision(unit)
        if placed is not None:
            taken = update(workers).where(workers.c.id == worker_id).values(last_one_shot_run=placed.id)
            await unit.connection.execute(taken)
        return placed

    return decide


class Claimants:
    """Connected agents that were started for a run, told to go when they can't get it any more."""

    def __init__(self, board: Board, workers: WorkerDirectory) -> None:
        self._board = board
        self._workers = workers

    def ended(self, run_id: str, incarnation: str | None) -> None:
        """The run is over; ``incarnation`` is of the agent process that had it last."""
        for link in self._workers.live():
            if link.claimed_run == run_id and link.incarnation[:32] != incarnation:
                link.run_gone()

    def look(self, link: WorkerLink) -> None:
        """All is known of the agent now: does its run still wait for it, and can it execute it?"""
        run_id = link.claimed_run
        if run_id is None or not link.accepting:
            return
        claim = Claim(
            run_id=run_id,
            place=link.view.id,
            name=link.view.name,
            devices=tuple(info.device for info in link.devices),
        )
        waiting = self._board.lines.get(run_id)
        needs = None if waiting is None else waiting.needs
        lacks = isinstance(needs, Needs) and not has_types(link.node_types, needs.node_types)
        if lacks or claim_problem(self._board, claim) is not None:
            link.run_gone()
