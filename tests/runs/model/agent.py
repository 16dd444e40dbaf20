"""What agents may do next: read and write the line, and carry their attempts on."""

from functools import cache

from codefyui_core.agent.machine import Effect
from codefyui_core.agent.machine import State as AgentState
from codefyui_core.runs.machine import State
from codefyui_core.runs.status import Outcome, StopReason
from codefyui_core.wire.messages import Verdict, VerdictKind

from .code import Code, Move, Moves, put
from .held import Acted, events_in
from .rules import Rule, Violation
from .world import (
    Ack,
    Agent,
    Assign,
    Bye,
    Down,
    Held,
    Hello,
    ItemsFrame,
    Line,
    Refuse,
    Refused,
    Rewind,
    Seat,
    Spool,
    Stop,
    Welcome,
    World,
)

_RECEIVED = AgentState.RECEIVED.value
UNDER_WAY = 2
"""Frames of an agent at once."""


def agent_moves(world: World, code: Code) -> Moves:
    for index, agent in enumerate(world.agents):
        if agent.up:
            yield from _line_moves(world, code, index, agent)
            for run, held in enumerate(agent.held):
                if held is not None:
                    yield from _life_moves(world, code, index, run, held)
        elif not agent.over:
            yield Move(("agent starts", index), with_agent(world, index, _started(agent, code)))


def with_agent(world: World, index: int, agent: Agent) -> World:
    return world._replace(agents=put(world.agents, index, agent))


# ---------------------------------------------------------------- its process


def _started(agent: Agent, code: Code) -> Agent:
    """A new process takes over what one of before left on the disk."""
    found = tuple(
        code.attempts.found(run, spool)
        if spool is not None and not spool.done and Rule.LISTS_DISK not in code.off
        else None
        for run, spool in enumerate(agent.disk)
    )
    return agent._replace(up=True, process=agent.process + 1, held=found)


def left(agent: Agent, code: Code, *, dead: bool = False) -> Agent:
    """Without its connection. The other side may not know yet."""
    line, old = agent.line, agent.old
    if line is not None and line.seat is not Seat.CLOSED:
        unread = line.down if Rule.DROPS_OLD_FRAMES in code.off and not dead else ()
        old = line._replace(open=False, down=unread)
    if dead and old is not None:
        old = old._replace(down=())
    held = tuple(
        None if dead or one is None else code.attempts.disconnected(run, one, agent.disk[run])
        for run, one in enumerate(agent.held)
    )
    return agent._replace(up=not dead, line=None, old=old, held=held)


def dead(agent: Agent, code: Code, *, over: bool = False) -> Agent:
    """The process is gone, and the run processes with it."""
    return left(agent, code, dead=True)._replace(over=over)


# ---------------------------------------------------------------- the line


def _line_moves(world: World, code: Code, index: int, agent: Agent) -> Moves:
    line = agent.line
    if line is None:
        yield Move(("dials", index), with_agent(world, index, _dialled(agent, code)))
    elif line.down:
        rest = agent._replace(line=line._replace(down=line.down[1:]))
        yield from _read(with_agent(world, index, rest), code, index, line.down[0])
    elif line.seat is Seat.CLOSED:
        yield Move(("finds the line closed", index), with_agent(world, index, left(agent, code)))
    if agent.old is not None and agent.old.down:
        rest = agent._replace(old=agent.old._replace(down=agent.old.down[1:]))
        yield from _read(with_agent(world, index, rest), code, index, agent.old.down[0])


def _dialled(agent: Agent, code: Code) -> Agent:
    """Hello lists memory and disk together."""
    listed = tuple(
        code.attempts.listed(run, held, agent.disk[run])
        for run, held in enumerate(agent.held)
        if held is not None and (held.state != _RECEIVED or Rule.LISTS_MEMORY not in code.off)
    )
    return agent._replace(line=Line(up=(Hello(listed),), process=agent.process, credential=agent.credential))


def _read(world: World, code: Code, index: int, frame: Down) -> Moves:
    label = ("reads", frame.word, index)
    match frame:
        case Assign():
            yield from _assigned(world, code, index, frame)
        case Bye("revoked") | Refused("revoked"):
            yield Move(label, with_agent(world, index, dead(world.agents[index], code, over=True)))
        case Bye() | Refused():
            yield Move(label, with_agent(world, index, left(world.agents[index], code)))
        case Welcome():
            yield Move(label, _welcomed(world, code, index, frame))
        case Stop():
            yield Move(label, _stopped(world, code, index, frame))
        case Ack() | Rewind():
            yield Move(label, _answered(world, code, index, frame))


@cache
def _verdict(text: str) -> Verdict:
    return Verdict.model_validate_json(text)


def _number(run_id: str) -> int:
    return int(run_id[1:])


def _welcomed(world: World, code: Code, index: int, frame: Welcome) -> World:
    agent = world.agents[index]
    if agent.line is not None:
        world = with_agent(world, index, agent._replace(line=agent.line._replace(welcomed=True)))
    for text in frame.verdicts:
        verdict = _verdict(text)
        run = _number(verdict.run_id)
        held = world.agents[index].held[run]
        if verdict.stop is StopReason.USER:
            world = _stop_told(world, run)
        if held is not None and verdict.kind is not VerdictKind.KEEP:
            spool = world.agents[index].disk[run]
            acted = code.attempts.judged(run, held, spool, verdict.kind.value, verdict)
            world = _with(world, index, run, acted)
    return world


def _assigned(world: World, code: Code, index: int, frame: Assign) -> Moves:
    agent, run = world.agents[index], frame.run
    if agent.held[run] is not None:
        yield Move(("knows the assignment", index), world)
        return
    spool = agent.disk[run]
    if spool is not None and spool.done and spool.lease == frame.lease:
        yield Move(("has done it", index), _refusing(world, index, frame, retry=False))
        return
    held = code.attempts.assigned(run, frame.attempt, frame.lease)
    yield Move(("reads", "assign", index), _holding(world, index, run, held, None))
    if world.faults.refusals:
        faults = world.faults._replace(refusals=world.faults.refusals - 1)
        for retry in (True, False):
            refusing = _refusing(world, index, frame, retry=retry)._replace(faults=faults)
            yield Move(("refuses", "for now" if retry else "for good", index), refusing, fault=True)


def _refusing(world: World, index: int, frame: Assign, *, retry: bool) -> World:
    return _sent(world, index, Refuse(frame.run, frame.attempt, retry))


def _answered(world: World, code: Code, index: int, frame: Ack | Rewind) -> World:
    run, attempts = frame.run, code.attempts
    held, spool = world.agents[index].held[run], world.agents[index].disk[run]
    if held is None or held.attempt != frame.attempt:
        return world
    if isinstance(frame, Ack):
        return _with(world, index, run, attempts.acked(run, held, spool, frame.seq, frame.recorded))
    return _with(world, index, run, attempts.rewound(run, held, spool, frame.position))


def _stopped(world: World, code: Code, index: int, frame: Stop) -> World:
    held, spool = world.agents[index].held[frame.run], world.agents[index].disk[frame.run]
    if frame.reason is StopReason.USER:
        world = _stop_told(world, frame.run)
    if held is None or held.attempt != frame.attempt:
        return world
    return _with(world, index, frame.run, code.attempts.stopped(frame.run, held, spool, frame.reason))


def _stop_told(world: World, run: int) -> World:
    one = world.runs[run]
    if one.started or one.stop_told:
        return world
    return world._replace(runs=put(world.runs, run, one._replace(stop_told=True)))


def _sent(world: World, index: int, frame: ItemsFrame | Refuse) -> World:
    """Lost if the other side has closed."""
    agent = world.agents[index]
    line = agent.line
    if line is None or line.seat is Seat.CLOSED:
        return world
    return with_agent(world, index, agent._replace(line=line._replace(up=(*line.up, frame))))


# ---------------------------------------------------------------- its attempts


def _life_moves(world: World, code: Code, index: int, run: int, held: Held) -> Moves:
    spool, attempts = world.agents[index].disk[run], code.attempts
    if held.state == _RECEIVED:
        accepted = _with(world, index, run, attempts.accept(run, held))
        yield Move(("writes accepted", index, run), accepted)
        return
    assert spool is not None
    if world.faults.power and spool.synced < len(spool.items):
        synced = _holding(world, index, run, held, spool._replace(synced=len(spool.items)))
        yield Move(("syncs", index, run), synced)
    line = world.agents[index].line
    if line is not None and line.welcomed and len(line.up) < UNDER_WAY:
        acted = attempts.sent(run, held, spool)
        if acted is not None:
            sending = _sent(world, index, ItemsFrame(run, acted.answer))
            yield Move(("sends", index, run), _with(sending, index, run, acted))
    for word, acted in _steps(code, run, held, spool):
        yield Move((word, index, run), _with(world, index, run, acted))


def _steps(code: Code, run: int, held: Held, spool: Spool) -> "list[tuple[str, Acted]]":
    """What the driver does next for the attempt."""
    attempts = code.attempts
    match AgentState(held.state):
        case AgentState.PREPARING if not held.has_process:
            if held.stop_reason is not None:
                return [("gives it up", attempts.end(run, held, spool))]
            return [("prepares", attempts.prepare(run, held, spool))]
        case AgentState.PREPARING if held.stop_reason is not None:
            return [("exits", attempts.exited(run, held, spool, None))]
        case AgentState.RUNNING:
            if events_in(spool) == code.events:
                return [("exits", attempts.exited(run, held, spool, Outcome.SUCCEEDED))]
            emitted = ("emits", attempts.emit(run, held, spool))
            if held.stop_reason is None:
                return [emitted]
            return [emitted, ("exits stopped", attempts.exited(run, held, spool, Outcome.STOPPED))]
        case AgentState.PUBLISHING if not held.recovered:
            return [("writes end", attempts.end(run, held, spool))]
    return []


def _with(world: World, index: int, run: int, acted: Acted) -> World:
    """Carry out what an act on an attempt asks for."""
    if Effect.GO in acted.effects:
        world = _begun(world, index, run)
    if Effect.REMOVE in acted.effects:
        done = Spool(attempt=acted.held.attempt, lease=acted.held.lease, done=True)
        return _holding(world, index, run, None, done)
    return _holding(world, index, run, acted.held, acted.spool)


def _holding(world: World, index: int, run: int, held: Held | None, spool: Spool | None) -> World:
    agent = world.agents[index]
    if spool is None:
        spool = agent.disk[run]
    elif not world.faults.power and spool.synced != len(spool.items):
        spool = spool._replace(synced=len(spool.items))  # nothing can come of the difference
    agent = agent._replace(held=put(agent.held, run, held), disk=put(agent.disk, run, spool))
    return with_agent(world, index, agent)


def _begun(world: World, index: int, run: int) -> World:
    """User code starts. Once another machine has spoken for the worker, what this one still does is unknown to
    the control plane, which has settled the run by the other's word.

    Raises: Violation when it may not.
    """
    one = world.runs[run]
    if one.started:
        raise Violation("two starts", f"user code of run {run} starts a second time")
    if one.stop_told:
        raise Violation("start after stop", f"run {run} starts though a stop had reached its agent")
    if one.stored.state is State.SETTLED and not world.plane.removed and world.plane.before == index:
        raise Violation("start after end", f"run {run} starts though it is settled")
    return world._replace(runs=put(world.runs, run, one._replace(started=True)))
