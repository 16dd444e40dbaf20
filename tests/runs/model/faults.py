"""What may go wrong, and what people may ask for; each counts against a budget."""

from codefyui_core.runs.machine import State
from codefyui_core.runs.status import StopReason

from .agent import dead, left, with_agent
from .code import Code, Move, Moves
from .desk import EXECUTING, Desk
from .plane import in_doubt, stored_part
from .rules import Rule
from .world import Agent, Bye, ItemsFrame, Line, Seat, World


def fault_moves(world: World, code: Code) -> Moves:
    for index, agent in enumerate(world.agents):
        yield from _line_faults(world, code, index, agent)
        if agent.up:
            yield from _machine_faults(world, code, index, agent)
    if world.plane.up:
        yield from _orders(world, code)
        if world.faults.crashes:
            yield Move(("CRASH",), _crashed(_less(world, "crashes")), fault=True)


def _less(world: World, kind: str) -> World:
    """One fault of the kind less is left."""
    return world._replace(faults=world.faults._replace(**{kind: getattr(world.faults, kind) - 1}))


def _line_faults(world: World, code: Code, index: int, agent: Agent) -> Moves:
    line, faults = agent.line, world.faults
    if line is None or line.seat is Seat.CLOSED:
        return
    if faults.cuts and agent.old is None:
        cut = with_agent(_less(world, "cuts"), index, left(agent, code))
        yield Move(("CUT", index), cut, fault=True)
    if faults.silences:
        yield Move(("SILENCE", index), _silent(_less(world, "silences"), code, index), fault=True)
    if faults.doubts and line.seat is Seat.SPEAKS and line.up and isinstance(line.up[0], ItemsFrame):
        doubted = in_doubt(_less(world, "doubts"), code, index, "line")
        yield Move(("server reads", "items IN DOUBT", index), doubted, fault=True)


def _silent(world: World, code: Code, index: int) -> World:
    """The control plane leaves the line; what it had sent still arrives."""
    desk = Desk(world, code)
    spoke = desk.line(index, "line").seat is Seat.SPEAKS
    desk.close(index, "line")
    if spoke:
        desk.link_down()
    return desk.done()


def _machine_faults(world: World, code: Code, index: int, agent: Agent) -> Moves:
    gone = dead(agent, code)
    if world.faults.kills:
        yield Move(("KILL", index), with_agent(_less(world, "kills"), index, gone), fault=True)
    if world.faults.power:
        kept = tuple(
            one if one is None or one.done else one._replace(items=one.items[: one.synced])
            for one in gone.disk
        )
        lost = with_agent(_less(world, "power"), index, gone._replace(disk=kept))
        yield Move(("POWER LOSS", index), lost, fault=True)
    if world.faults.wipes:
        empty = gone._replace(disk=(None,) * len(gone.disk))
        yield Move(("WIPE", index), with_agent(_less(world, "wipes"), index, empty), fault=True)


def _crashed(world: World) -> World:
    """The control plane's memory and all frames under way are gone."""
    agents = tuple(
        agent._replace(old=None, line=None if agent.line is None else Line(seat=Seat.CLOSED))
        for agent in world.agents
    )
    return world._replace(plane=stored_part(world.plane), agents=agents)


# ---------------------------------------------------------------- people


def _orders(world: World, code: Code) -> Moves:
    plane, faults = world.plane, world.faults
    if faults.stops and plane.pending is None:
        for run, one in enumerate(world.runs):
            if one.stored.state not in {State.LATE, State.SETTLED}:
                yield Move(("STOP", run), _stop(_less(world, "stops"), code, run), fault=True)
    if plane.stopping:
        return
    for kind, word in (("shutdowns", "stop"), ("keeps", "keep")):
        if getattr(faults, kind):
            stopping = plane._replace(stopping=True, shutdown=word)
            yield Move((kind.upper(),), _less(world, kind)._replace(plane=stopping), fault=True)
    if plane.removed or plane.pending is not None:
        return
    if faults.removes:
        yield Move(("REMOVE",), _remove(_less(world, "removes"), code), fault=True)
    if faults.rekeys:
        for index in range(len(world.agents)):
            rekeyed = _rekey(_less(world, "rekeys"), code, index)
            yield Move(("REKEY", index), rekeyed, fault=True)


def _stop(world: World, code: Code, run: int) -> World:
    desk = Desk(world, code)
    if Rule.STOP_STORED_FIRST in code.off and desk.runs[run].state in EXECUTING:
        desk.send_stop(run, StopReason.USER)
        desk.plane = desk.plane._replace(pending=("stop", run, 0))
    else:
        desk.commit(code.ledger.stop(desk.runs, run, StopReason.USER))
    return desk.done()


def _remove(world: World, code: Code) -> World:
    """The first half: the credential is revoked. Nobody was told."""
    desk = Desk(world, code)
    holder = desk.speaker()
    if Rule.REMOVE_STORED_FIRST in code.off and holder is not None:
        desk.send(*holder, Bye("revoked"))
        desk.plane = desk.plane._replace(pending=("remove", 0, 0))
    else:
        desk.plane = desk.plane._replace(removed=True)
    return desk.done()


def _rekey(world: World, code: Code, index: int) -> World:
    """A person starts an agent on one of the machines with a token for the worker."""
    desk = Desk(world, code)
    desk.rekey()
    agent = dead(desk.agents[index], code)._replace(credential=desk.plane.credential)
    return with_agent(desk.done(), index, agent)
