"""One actor an identity: hello, silence, Remove and the frames of its session come one by one."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.db.outages import log_failure
from codefyui_core.control.runs.desk import RunDesk
from codefyui_core.runs.record import split_identity
from codefyui_core.wire.messages import ControlBye

from .session import RETRY_S, Session


class Actor:
    """Of one worker, or of one of its instances. ``lock`` is held for everything that changes who speaks for it."""

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

    def family(self, worker_id: str) -> Sequence[Actor]:
        """The worker's own, and those of its instances."""
        return [actor for name, actor in sorted(self._actors.items()) if split_identity(name)[0] == worker_id]

    def instances(self, worker_id: str) -> Sequence[Session]:
        """Of the worker, as far as they are connected."""
        sessions = [actor.session for actor in self.family(worker_id) if actor.worker_id != worker_id]
        return [session for session in sessions if session is not None]

    def forget(self, worker_id: str) -> None:
        """The worker was removed."""
        for actor in self.family(worker_id):
            if actor.session is None and not actor.lock.locked():
                del self._actors[actor.worker_id]

    @asynccontextmanager
    async def held(self, worker_id: str) -> AsyncIterator[Sequence[Session]]:
        """Nobody comes or goes for the worker and its instances meanwhile; the sessions that there are."""
        async with self._locked(worker_id) as actors:
            yield [actor.session for actor in actors if actor.session is not None]

    @asynccontextmanager
    async def _locked(self, worker_id: str) -> AsyncIterator[Sequence[Actor]]:
        self.of(worker_id)
        async with AsyncExitStack() as stack:
            actors = self.family(worker_id)
            for actor in actors:
                await stack.enter_async_context(actor.lock)
            yield actors

    @asynccontextmanager
    async def revoking(self, worker_id: str) -> AsyncIterator[None]:
        """Nobody speaks for them meanwhile. They are told that they are revoked when the block is done. When it
        fails, nobody knows whether it was committed: their lines are cut, and the database judges who comes back.
        """
        async with self._locked(worker_id) as actors:
            sessions = [session for actor in actors if (session := _unseated(actor)) is not None]
            try:
                yield
            except BaseException:
                for session in sessions:
                    session.line.abort()
                raise
            for actor in self.family(worker_id):
                if actor not in actors:  # an instance whose hello was under way, with the older credential
                    async with actor.lock:
                        sessions += [session] if (session := _unseated(actor)) is not None else []
            for session in sessions:
                _revoked(session)

    def leave(self) -> Sequence[Session]:
        """The server stops. Its runs are stopped already, or kept for the next start: nothing of a line's end
        has to be told one by one. Answers who was connected.
        """
        left = list(self.sessions())
        for session in left:
            self.of(session.worker_id).session = None
            session.dispose()
            session.told_down = True
        return left

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
        except Exception as error:
            log_failure(
                self._log, error, "worker %s left, and its runs couldn't be told yet", session.view.name
            )
            return False
        session.told_down = True
        return True


def _unseated(actor: Actor) -> Session | None:
    """Who spoke for it. Under the actor's lock."""
    session, actor.session = actor.session, None
    if session is not None:
        session.dispose()
    return session


def _revoked(session: Session) -> None:
    """Its runs are over: nothing of its line's end has to be told."""
    session.told_down = True
    session.finish(ControlBye(reason="revoked"))
