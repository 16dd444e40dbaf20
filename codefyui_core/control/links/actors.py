"""One actor an identity: hello, silence, Remove and the frames of its session come one by one."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.runs.desk import RunDesk
from codefyui_core.wire.messages import ControlBye

from .session import RETRY_S, Session


class Actor:
    """Of one worker. ``lock`` is held for everything that changes who speaks for it."""

    def __init__(self, worker_id: str) -> None:
        self.worker_id = worker_id
        self.lock = asyncio.Lock()
        self.session: Session | None = None
        self._newest = ("", 0)

    def is_stale(self, incarnation: str, dial: int) -> bool:
        """A hello that is older than one which was seated: its line held it back."""
        return incarnation == self._newest[0] and dial < self._newest[1]

    def seated(self, incarnation: str, dial: int) -> None:
        """Remember the newest hello of the process that speaks."""
        self._newest = (incarnation, dial)


class Actors:
    """All of them, and the connected ones as runs see them."""

    def __init__(
        self,
        *,
        desk: Callable[[], RunDesk],
        clock: AttentiveClock,
        log: logging.Logger,
        changed: Callable[[str], None],
        gone: Callable[[Session], Awaitable[None]],
    ) -> None:
        """``gone``: a session ended; told before the runs are."""
        self._gone = gone
        self._desk = desk
        self._clock = clock
        self._log = log
        self._changed = changed
        self._actors: dict[str, Actor] = {}

    def of(self, worker_id: str) -> Actor:
        return self._actors.setdefault(worker_id, Actor(worker_id))

    def sessions(self) -> Iterable[Session]:
        return [actor.session for actor in self._actors.values() if actor.session is not None]

    def session(self, worker_id: str) -> Session | None:
        actor = self._actors.get(worker_id)
        return None if actor is None else actor.session

    def forget(self, worker_id: str) -> None:
        """The worker was removed."""
        actor = self._actors.get(worker_id)
        if actor is not None and actor.session is None and not actor.lock.locked():
            del self._actors[worker_id]

    def seat(self, actor: Actor, session: Session) -> None:
        """The newcomer speaks from now on. Under the actor's lock."""
        old, actor.session = actor.session, session
        if old is not None:
            old.dispose()
            old.told_down = True
            old.finish(ControlBye(reason="replaced"))
        self._changed(actor.worker_id)

    async def down(self, session: Session, why: str) -> None:
        """The session's line is down, unless a newer session speaks already."""
        actor = self.of(session.worker_id)
        while not session.told_down:
            async with actor.lock:
                if actor.session is not None and actor.session is not session:
                    return
                if await self.down_locked(session, why):
                    return
            await self._clock.delay(RETRY_S)

    async def down_locked(self, session: Session, why: str) -> bool:
        """The same for callers that hold the actor's lock. The answer: the runs know it."""
        actor = self.of(session.worker_id)
        if session.told_down:
            return True
        if actor.session is session:
            actor.session = None
            session.dispose()
            self._changed(session.worker_id)
        try:
            await self._gone(session)
            await self._desk().link_down(session.worker_id, why)
        except Exception:
            self._log.exception("worker %s left, and its runs couldn't be told", session.view.name)
            return False
        session.told_down = True
        return True
