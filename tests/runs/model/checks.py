"""What must hold in every state, and what must stay reachable from each."""

from codefyui_core.control.runs.decisions import AWAY
from codefyui_core.runs.machine import State

from .plane import CAPACITY
from .rules import Violation
from .world import Agent, Held, Run, Seat, World

KINDS = {
    "two starts": "user code of a run starts at most once",
    "start after stop": "not after a user's stop reached its agent",
    "start after end": "not once the run is settled, unless its worker was removed",
    "log": "user events are logged in order, once each",
    "one end": "one closing event, the last of the log; the status never changes after it",
    "acknowledged": "nothing is acknowledged that isn't stored",
    "slots": "slots in use are those of live attempts, and no more than there are",
    "settled": "no settled run executes on an agent that was told so",
    "away": "a run is away only while nobody speaks for its worker",
    "removed": "nothing of a removed worker counts",
    "illegal": "no event comes that has no line in the table",
    "taken": "no other machine ends what one executes",
    "stuck": "a settled end, with nothing left behind, stays reachable",
}


def check(world: World) -> None:
    """Raises: Violation."""
    speaking = _speaking(world)
    if sum(run.stored.slot for run in world.runs) > CAPACITY:
        raise Violation("slots", "more are in use than there are")
    for agent in world.agents:
        if sum(held is not None and held.has_processes for held in agent.held) > CAPACITY:
            raise Violation("slots", "two runs are on one device")
        for run, held in zip(world.runs, agent.held, strict=True):
            if held is not None:
                _check_held(world, run, held, told=agent is speaking)
    if speaking is not None and any(_away(run) for run in world.runs):
        raise Violation("away", "a run is away though its worker is connected")
    if world.plane.forgotten:
        _check_removed(world)


def _speaking(world: World) -> Agent | None:
    """The agent that speaks for the worker, as far as the control plane knows."""
    for agent in world.agents:
        for line in (agent.line, agent.old):
            if line is not None and line.seat is Seat.SPEAKS:
                return agent
    return None


def _check_held(world: World, run: Run, held: Held, *, told: bool) -> None:
    stored = run.stored
    if stored.attempt != held.attempt or stored.state is State.QUEUED:
        return
    if held.position > stored.position:
        raise Violation("acknowledged", f"{held.position} was, {stored.position} is stored")
    if not told or not held.has_processes or held.stop_reason is not None:
        return
    number = world.runs.index(run)
    if not stored.slot and number not in world.plane.ghosts and _knows(world, held):
        raise Violation("slots", f"run {number} executes and doesn't count")
    if stored.state is State.SETTLED and _knows(world, held):
        raise Violation("settled", f"run {number} executes though it is settled")


def _knows(world: World, held: Held) -> bool:
    """Everything that was sent to the agent has reached it."""
    for agent in world.agents:
        if held in agent.held:
            line = agent.line
            return line is not None and line.welcomed and line.seat is Seat.SPEAKS and not line.down
    return False


def _away(run: Run) -> bool:
    return run.stored.state in AWAY and run.stored.record.now.away_why is not None


def _check_removed(world: World) -> None:
    if _speaking(world) is not None or any(run.stored.state is not State.SETTLED for run in world.runs):
        raise Violation("removed", "something of the worker still counts")


def over(world: World) -> bool:
    """Where every story must be able to end: all settled, nothing executes, nothing is left on a disk. A spool
    may stay where a twin of its agent holds the name, until a person ends one of both.
    """
    if any(run.stored.state is not State.SETTLED for run in world.runs):
        return False
    speaking = _speaking(world)
    return all(agent.over or _bare(agent) or speaking not in {None, agent} for agent in world.agents)


def _bare(agent: Agent) -> bool:
    return not any(agent.held) and all(spool is None or spool.done for spool in agent.disk)
