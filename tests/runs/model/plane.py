"""What the control plane may do next: read frames, notice, wait, place, start and stop."""

from codefyui_core.control.links.admission import Before, Decision, Party, Scene, decide
from codefyui_core.control.runs.stream import Gap
from codefyui_core.runs.machine import Event, State
from codefyui_core.runs.status import StopReason

from .code import Code, Move, Moves
from .desk import EXECUTING, Desk, incarnation
from .ledger import UNKNOWN
from .rules import Rule
from .world import Hello, ItemsFrame, Line, Plane, Refuse, Seat, World

CAPACITY = 1


def plane_moves(world: World, code: Code) -> Moves:
    plane = world.plane
    if not plane.up:
        yield Move(("server starts",), _started(world, code))
        return
    yield from _line_moves(world, code)
    for run in sorted(plane.graces):
        yield Move(("grace is over", run), _grace_over(world, code, run))
    for run in sorted(plane.ghosts - plane.late):
        if not _has_processes(world, run):
            laid = plane._replace(ghosts=plane.ghosts - {run})
            yield Move(("ghost is laid", run), world._replace(plane=laid))
    if plane.pending is not None:
        yield Move(("stores it", plane.pending[0]), _stored(world, code))
    if plane.stopping:
        yield from _stopping_moves(world, code)
    elif (placed := _next(world, code)) is not None:
        yield Move(("places", placed), _placed(world, code, placed))
    if plane.removed and not plane.forgotten:
        yield Move(("ends the removed worker",), _removed(world, code))


# ---------------------------------------------------------------- connections


def _line_moves(world: World, code: Code) -> Moves:
    heard = {Seat.NEW, Seat.SPEAKS} | ({Seat.SILENCED} if Rule.NEWEST_SPEAKS in code.off else set())
    for index, agent in enumerate(world.agents):
        for which in ("line", "old"):
            line: Line | None = getattr(agent, which)
            if line is None or line.seat not in heard:
                continue
            if line.up:
                yield Move(("server reads", line.up[0].word, index, which), _read(world, code, index, which))
            if not line.open:
                yield Move(("server notices the cut", index, which), _noticed(world, code, index, which))


def _noticed(world: World, code: Code, index: int, which: str) -> World:
    """The connection is closed, and what was still under way is lost."""
    desk = Desk(world, code)
    seat = desk.line(index, which).seat
    desk.close(index, which)
    if seat is not Seat.NEW:
        desk.link_down()
    return desk.done()


def _read(world: World, code: Code, index: int, which: str) -> World:
    desk = Desk(world, code)
    line = desk.line(index, which)
    frame = line.up[0]
    desk.set_line(index, which, line._replace(up=line.up[1:]))
    match frame:
        case Hello():
            _hello(desk, index, which, frame)
        case ItemsFrame():
            _items(desk, index, which, frame)
        case Refuse():
            desk.commit(code.ledger.refused(desk.runs, frame.run, frame.attempt, retry=frame.retry))
    return desk.done()


def _items(desk: Desk, index: int, which: str, frame: ItemsFrame, *, doubt: bool = False) -> None:
    made = desk.code.ledger.take_in(desk.runs, frame.text, doubt=doubt)
    if made.answer == UNKNOWN:
        desk.dismiss(index, which, "resync")
        desk.link_down()
        return
    position = desk.runs[frame.run].position
    desk.commit(made)
    if isinstance(made.answer, Gap):
        desk.rewind(index, which, frame.run, made.answer.position)
        return
    if made.answer.late:
        desk.heard_late(frame.run, frame.text)
    if Rule.ONE_TRANSACTION in desk.code.off and made.answer.position > position:
        desk.store_later(frame.run, position, made.answer.position)
        return
    desk.ack(index, which, frame.run, made.answer)


def in_doubt(world: World, code: Code, index: int, which: str) -> World:
    """As a read batch, but the commit's outcome is unknown and the decision is run again."""
    desk = Desk(world, code)
    line = desk.line(index, which)
    frame = line.up[0]
    assert isinstance(frame, ItemsFrame)
    desk.set_line(index, which, line._replace(up=line.up[1:]))
    _items(desk, index, which, frame, doubt=True)
    return desk.done()


# ---------------------------------------------------------------- hello


def _hello(desk: Desk, index: int, which: str, frame: Hello) -> None:
    line = desk.line(index, which)
    if desk.plane.stopping:
        desk.refuse(index, which, "busy")
    elif desk.plane.removed or line.credential != desk.plane.credential:
        desk.refuse(index, which, "revoked")
    elif not _admitted(desk, index, line, frame):
        desk.refuse(index, which, "name_held")
    else:
        desk.seat(index, which, frame.listed)


def _admitted(desk: Desk, index: int, line: Line, frame: Hello) -> bool:
    """Rows 2 to 8 of admission, asked until they decide."""
    answered: bool | None = None
    while True:
        holder = desk.speaker()
        in_flight = sum(stored.state in EXECUTING for stored in desk.runs)
        before = desk.plane.before
        scene = Scene(
            newcomer=_party(index, line),
            holder=None if holder is None else _party(holder[0], desk.line(*holder)),
            probe_answered=answered,
            before=Before(machine_id=f"machine {before}", home_id=f"home {before}"),
            in_flight=in_flight,
            shows_leases=in_flight > 0
            and desk.code.ledger.shows_leases(desk.runs, incarnation(index, line), frame.listed),
        )
        decision = decide(scene)
        if decision is Decision.HELD and holder is None and Rule.HELD_NAME in desk.code.off:
            return True
        if decision not in {Decision.PROBE, Decision.TAKE_OVER}:
            return decision is not Decision.HELD
        assert holder is not None
        if decision is Decision.PROBE:
            answered = desk.line(*holder).open
        else:
            desk.close(*holder)
            desk.link_down()


def _party(index: int, line: Line) -> Party:
    return Party(incarnation=incarnation(index, line), machine_id=f"machine {index}", home_id=f"home {index}")


# ---------------------------------------------------------------- waiting and placing


def _grace_over(world: World, code: Code, run: int) -> World:
    desk = Desk(world, code)
    desk.plane = desk.plane._replace(graces=desk.plane.graces - {run})
    if desk.runs[run].record.now.away_why is not None:
        desk.commit(code.ledger.grace_over(desk.runs, run))
    return desk.done()


def _has_processes(world: World, run: int) -> bool:
    held = [agent.held[run] for agent in world.agents]
    return any(one is not None and one.has_processes for one in held)


def _next(world: World, code: Code) -> int | None:
    """The first that waits, if there is room; the queue itself has tests of its own."""
    waiting = [n for n, run in enumerate(world.runs) if run.stored.state is State.QUEUED]
    if not waiting or world.plane.removed or Desk(world, code).speaker() is None:
        return None
    used = sum(run.stored.slot for run in world.runs)
    if Rule.GHOSTS_BLOCK not in code.off:
        used += len(world.plane.ghosts)
    return waiting[0] if used < CAPACITY else None


def _placed(world: World, code: Code, run: int) -> World:
    desk = Desk(world, code)
    holder = desk.speaker()
    assert holder is not None
    desk.commit(code.ledger.place(desk.runs, run, incarnation(holder[0], desk.line(*holder))))
    desk.plane = desk.plane._replace(leases=desk.plane.leases | {run})
    desk.assign(run)
    return desk.done()


# ---------------------------------------------------------------- start, stop, Remove


def _started(world: World, code: Code) -> World:
    """T9: take over, then finish what the last process had begun; only then listen."""
    desk = Desk(world, code)
    desk.plane = desk.plane._replace(up=True)
    desk.commit(code.ledger.take_over(desk.runs, after_stop=world.plane.shutdown == "stop"))
    desk.plane = desk.plane._replace(shutdown="running")
    world = desk.done()
    return _removed(world, code) if world.plane.removed and not world.plane.forgotten else world


def _stopping_moves(world: World, code: Code) -> Moves:
    if world.plane.shutdown == "stop":
        executing = [run.stored for run in world.runs if run.stored.state in EXECUTING]
        if any(stored.record.stop_reason is None for stored in executing):
            yield Move(("asks all to stop",), _asked_to_stop(world, code))
            return
        if executing:
            yield Move(("ends what is left",), _ended(world, code))
            return
    yield Move(("server is down",), _down(world, code))


def _asked_to_stop(world: World, code: Code) -> World:
    desk = Desk(world, code)
    desk.commit(code.ledger.shutdown_over(desk.runs, away_only=True))
    for run, stored in enumerate(desk.runs):
        if stored.state in EXECUTING:
            desk.commit(code.ledger.stop(desk.runs, run, StopReason.SERVER_STOP))
    return desk.done()


def _ended(world: World, code: Code) -> World:
    desk = Desk(world, code)
    desk.commit(code.ledger.shutdown_over(desk.runs, away_only=False))
    return desk.done()


def _down(world: World, code: Code) -> World:
    desk = Desk(world, code)
    stop = desk.plane.shutdown == "stop"
    desk.dismiss_all("shutdown" if stop else "restart")
    desk.plane = stored_part(desk.plane)._replace(up=False, shutdown="clean" if stop else "keep")
    return desk.done()


def stored_part(plane: Plane) -> Plane:
    """What a control plane that died leaves."""
    return Plane(
        up=False,
        shutdown=plane.shutdown,
        credential=plane.credential,
        removed=plane.removed,
        forgotten=plane.forgotten,
        before=plane.before,
    )


def _removed(world: World, code: Code) -> World:
    """The second half of Remove."""
    desk = Desk(world, code)
    holder = desk.speaker()
    desk.commit(code.ledger.end_worker(desk.runs, Event.REMOVED))
    if holder is not None:
        desk.dismiss(*holder, "revoked")
    desk.plane = desk.plane._replace(forgotten=True)
    return desk.done()


def _stored(world: World, code: Code) -> World:
    """What was told before it was stored; only with a rule switched off."""
    desk = Desk(world, code)
    assert desk.plane.pending is not None
    word, run, position = desk.plane.pending
    desk.plane = desk.plane._replace(pending=None)
    match word:
        case "position":
            desk.move_position(run, position)
        case "stop":
            desk.commit(code.ledger.stop(desk.runs, run, StopReason.USER))
        case "remove":
            desk.plane = desk.plane._replace(removed=True)
    return desk.done()
