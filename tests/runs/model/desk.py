"""The control plane's memory and connections while it carries one decision out."""

from codefyui_core.control.runs.decisions import EXECUTING
from codefyui_core.control.runs.fold import Folded
from codefyui_core.runs.machine import Effect, Event, State
from codefyui_core.runs.status import StopReason

from .code import Code, put
from .ledger import Outcome, Stored, Welcomed
from .rules import Rule, Violation
from .world import Ack, Assign, Bye, Down, Line, Refused, Rewind, Seat, Stop, Welcome, World

__all__ = ["EXECUTING", "Desk"]
LINES = ("line", "old")


def incarnation(index: int, line: Line) -> str:
    """Of the agent process that made the connection."""
    return f"{index}.{line.process}"


class Desk:
    """A world in the making. ``done`` gives the next one."""

    def __init__(self, world: World, code: Code) -> None:
        self._world = world
        self.code = code
        self.plane = world.plane
        self.runs: tuple[Stored, ...] = tuple(run.stored for run in world.runs)
        self.agents = world.agents
        self._unsent: set[int] = set()

    def done(self) -> World:
        runs = tuple(
            run if run.stored is stored else run._replace(stored=stored)
            for run, stored in zip(self._world.runs, self.runs, strict=True)
        )
        return self._world._replace(plane=self.plane, runs=runs, agents=self.agents)

    # ------------------------------------------------------------ connections

    def line(self, index: int, which: str) -> Line:
        line: Line | None = getattr(self.agents[index], which)
        assert line is not None
        return line

    def set_line(self, index: int, which: str, line: Line) -> None:
        """A connection that neither side reads any more is no connection."""
        ignored = line.seat is Seat.CLOSED or (
            line.seat is Seat.SILENCED and Rule.NEWEST_SPEAKS not in self.code.off
        )
        kept = None if ignored and not line.open and not line.down else line
        agent = self.agents[index]
        agent = agent._replace(line=kept) if which == "line" else agent._replace(old=kept)
        self.agents = put(self.agents, index, agent)

    def speaker(self) -> tuple[int, str] | None:
        """Whose session speaks for the worker."""
        for index, agent in enumerate(self.agents):
            if agent.line is not None and agent.line.seat is Seat.SPEAKS:
                return index, "line"
            if agent.old is not None and agent.old.seat is Seat.SPEAKS:
                return index, "old"
        return None

    def send(self, index: int, which: str, frame: Down) -> None:
        """Lost when the agent has left the line."""
        line: Line | None = getattr(self.agents[index], which)
        if line is not None and line.open:
            self.set_line(index, which, line._replace(down=(*line.down, frame)))

    def close(self, index: int, which: str) -> None:
        self.set_line(index, which, self.line(index, which)._replace(seat=Seat.CLOSED, up=()))

    def dismiss(self, index: int, which: str, reason: str) -> None:
        self.send(index, which, Bye(reason))
        self.close(index, which)

    def dismiss_all(self, reason: str) -> None:
        for index, agent in enumerate(self.agents):
            for which in LINES:
                if getattr(agent, which) is not None:
                    self.dismiss(index, which, reason)

    def refuse(self, index: int, which: str, code: str) -> None:
        self.send(index, which, Refused(code))
        self.close(index, which)

    def link_down(self) -> None:
        stopping = self.plane.stopping and self.plane.shutdown == "stop"
        self.commit(self.code.ledger.link_down(self.runs, stopping=stopping))

    # ------------------------------------------------------------ after a commit

    def commit(self, made: Outcome) -> None:
        """Take over what is stored now, and carry out what it asks for (``WorkerDesk.committed``)."""
        self.runs = made.runs
        for effect, run in made.effects:
            match effect:
                case Effect.START_GRACE:
                    self.plane = self.plane._replace(graces=self.plane.graces | {run})
                case Effect.STOP_GRACE:
                    self.plane = self.plane._replace(graces=self.plane.graces - {run})
                case Effect.SEND_ASSIGN:
                    self._unsent.add(run)
                case Effect.SEND_STOP:
                    reason = self.runs[run].record.stop_reason
                    assert reason is not None
                    self.send_stop(run, reason)
        for run in made.settled:
            self.plane = self.plane._replace(
                ghosts=self.plane.ghosts - {run},
                late=self.plane.late - {run},
                leases=self.plane.leases - {run},
            )

    def send_stop(self, run: int, reason: StopReason) -> None:
        holder = self.speaker()
        if holder is not None:
            self.send(*holder, Stop(run, self.runs[run].attempt, reason))

    def assign(self, run: int) -> None:
        holder = self.speaker()
        stored = self.runs[run]
        if holder is not None:
            self.send(*holder, Assign(run, stored.attempt, self.code.ledger.lease(stored)))

    def ack(self, index: int, which: str, run: int, answer: Folded) -> None:
        recorded = None if answer.recorded is None else answer.recorded.value
        self.send(index, which, Ack(run, self.runs[run].attempt, answer.position, recorded))

    def rewind(self, index: int, which: str, run: int, position: int) -> None:
        self.send(index, which, Rewind(run, self.runs[run].attempt, position))

    def heard_late(self, run: int, text: str) -> None:
        """``WorkerDesk._heard_late``."""
        if '"kind":"exited"' in text or '"kind":"end"' in text:
            self.plane = self.plane._replace(ghosts=self.plane.ghosts - {run})
        elif run not in self.plane.late:
            self.plane = self.plane._replace(late=self.plane.late | {run})
            if self.runs[run].state is State.LATE:
                self.send_stop(run, StopReason.LATE)

    # ------------------------------------------------------------ hello

    def seat(self, index: int, which: str, listed: tuple[str, ...]) -> None:
        """T5, the welcome, and what is to be sent again behind it."""
        made = self.code.ledger.hello(self.runs, listed, self.plane.leases)
        self._check_not_taken(index, made)
        self.commit(made)
        answer: Welcomed = made.answer
        self.plane = self.plane._replace(
            leases=self.plane.leases | answer.leases, late=answer.late, ghosts=answer.ghosts, before=index
        )
        self._replace_older(index, which)
        self.set_line(index, which, self.line(index, which)._replace(seat=Seat.SPEAKS))
        self.send(index, which, Welcome(answer.verdicts))
        for run in sorted(self._unsent):
            if self.runs[run].state is State.ASSIGNED:
                self.assign(run)

    def _check_not_taken(self, index: int, made: Outcome) -> None:
        """Raises: Violation when the word of one machine ends what another one executes."""
        for run, (before, after) in enumerate(zip(self.runs, made.runs, strict=True)):
            if before.state in EXECUTING and after.state is State.SETTLED:
                for other, agent in enumerate(self.agents):
                    held = agent.held[run]
                    if other != index and held is not None and held.has_processes:
                        raise Violation("taken", f"machine {index} ended run {run} of machine {other}")

    def _replace_older(self, index: int, which: str) -> None:
        """The newcomer speaks from now on. A hello that a stalled line still holds back is refused."""
        other = "old" if which == "line" else "line"
        older: Line | None = getattr(self.agents[index], other)
        if older is None:
            return
        if older.seat is Seat.SPEAKS:
            self.set_line(index, other, older._replace(seat=Seat.SILENCED))
        elif (
            which == "line"
            and older.process == self.line(index, which).process
            and Rule.NO_OLD_HELLO not in self.code.off
        ):
            self.close(index, other)

    # ------------------------------------------------------------ with a rule switched off

    def store_later(self, run: int, before: int, position: int) -> None:
        self.runs = self.code.ledger.with_position(self.runs, run, before)
        self.plane = self.plane._replace(pending=("position", run, position))

    def move_position(self, run: int, position: int) -> None:
        self.runs = self.code.ledger.with_position(self.runs, run, position)

    def rekey(self) -> None:
        """A new credential was given out; who has the old one is told."""
        holder = self.speaker()
        self.plane = self.plane._replace(credential=self.plane.credential + 1)
        self.commit(self.code.ledger.end_worker(self.runs, Event.REKEYED))
        if holder is not None:
            self.dismiss(*holder, "revoked")
