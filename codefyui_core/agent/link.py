"""Keeps the agent connected: dials, hands the socket to a session, and decides what a failure means."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from codefyui_core.clocks import AfterPause, AttentiveClock
from codefyui_core.errors import LinkProblem
from codefyui_core.plugin.connector import AgentEventKind, Dial, Purpose, TrustKind
from codefyui_core.wire.messages import AgentBye, RefusalCode, Refused

from .advice import FATAL_STATUS, REFUSAL_HEADER, of_status
from .backoff import RESET_AFTER_S, Backoff
from .credentials import CredentialFile
from .dialer import Dialer
from .http import Way
from .session import AgentSession, Closed, Duty, open_socket

PLAIN_WARNING = (
    "Warning: connecting over plain HTTP to another machine. The worker token and the secrets in every "
    "assignment travel unencrypted; use https://, SSH or a VPN on a network that you don't trust."
)
RUN_GONE = (
    "The run that this agent was started for doesn't wait for it any more, or can't be executed here: the "
    "server's log says why. Start it without --run-id to take the oldest one that fits."
)
LEAVE_WITHIN_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Why the agent doesn't dial any more."""

    exit_code: int
    message: str = ""
    revoked: bool = False
    lost: bool = False
    """By a connector whose way only the other side can bring back."""


class Link:
    """One agent's way to its control plane."""

    def __init__(
        self,
        *,
        dialer: Dialer,
        duty: Duty,
        credential: Callable[[], Awaitable[CredentialFile]],
        keep: Callable[[Dial], Awaitable[None]],
        warn: Callable[[str], None],
        clock: AttentiveClock,
        log: logging.Logger,
        file: Path,
        grace_s: Callable[[], float],
        unknown: Callable[[], Awaitable[bool]] | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        """``credential`` is asked at each dial, ``keep`` told of the dial that was accepted, ``warn`` prints
        what a person is to see once. ``unknown``: the credential is unknown there; True: there is a new one.
        """
        self.dialer = dialer
        self._duty = duty
        self._credential = credential
        self._keep = keep
        self._warn = warn
        self._clock = clock
        self._log = log
        self._file = file
        self._grace_s = grace_s
        self._unknown = unknown
        self._backoff = backoff or Backoff()
        self._warned = False
        self._soon_until = 0.0
        self._away = clock.timer(0.0, self._away_too_long, after_pause=AfterPause.RESTART)
        self._away.cancel()
        self._lost = False
        self._hurry = asyncio.Event()
        self._dial: Dial | None = None
        self._way: Way | None = None
        self._stopping = asyncio.Event()
        self.session: AgentSession | None = None
        self.connected = asyncio.Event()
        """Welcomed, now."""
        self.welcomes = 0
        """How often that was."""
        self._next_welcome = asyncio.Event()
        self.last_problem = ""

    # ------------------------------------------------------------ for others

    def way(self) -> Way | None:
        return self._way

    def news(self) -> None:
        if self.session is not None:
            self.session.news()

    async def leave(self, bye: AgentBye) -> None:
        """Say bye if there is a line, and dial no more."""
        self._stopping.set()
        session = self.session
        if session is not None and self.connected.is_set():
            session.leave(bye)
            for _ in range(int(LEAVE_WITHIN_S / 0.05)):
                if self.session is not session:
                    break
                await asyncio.sleep(0.05)
        self.stop()

    async def next_welcome(self) -> None:
        """Until the control plane lets us in the next time."""
        await self._next_welcome.wait()

    def hurry(self) -> None:
        """Dial now, if it waits to."""
        self._hurry.set()

    def stop(self) -> None:
        """Dial no more, and drop the line."""
        self._stopping.set()
        if self.session is not None:
            self.session.drop("the agent stops")

    # ------------------------------------------------------------ the loop

    async def run(self) -> Ending:
        """Until it is stopped, or refused for good."""
        remove = self._clock.on_pause(self._slept)
        self._lonely()
        try:
            while not self._stopping.is_set():
                ending, wait_s = await self._once()
                if ending is not None and not self._lost:
                    return ending
                await self._wait(wait_s)
            if self._lost:
                message = "there was no connection to the control plane for the grace; the agent stops"
                return Ending(exit_code=1, message=message, lost=True)
            return Ending(exit_code=0)
        finally:
            remove()
            self._away.cancel()

    def _lonely(self) -> None:
        """There is no connection: nobody may be there to bring the way back."""
        if self.dialer.half.stops_without_connection:
            self._away.restart(self._grace_s() + max(0.0, self._soon_until - self._clock.monotonic()))

    def _away_too_long(self) -> None:
        self._lost = True
        self._stopping.set()
        if self.session is not None:
            self.session.drop("there was no connection for the grace")

    def _slept(self) -> None:
        self._backoff.reset()
        self._hurry.set()
        if self.session is not None:
            self.session.drop("this machine slept")

    async def _wait(self, seconds: float) -> None:
        self._hurry.clear()
        waits = [
            asyncio.ensure_future(self._clock.delay(seconds)),
            asyncio.ensure_future(self._hurry.wait()),
            asyncio.ensure_future(self._stopping.wait()),
        ]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _once(self) -> tuple[Ending | None, float]:
        credential = await self._credential()
        try:
            closed = await self._connection(credential)
        except aiohttp.WSServerHandshakeError as error:
            return await self._refused_by_http(error, credential)
        except (aiohttp.ClientError, OSError, TimeoutError, LinkProblem) as error:
            return await self._failed(error)
        finally:
            self._way = self._dial = self.session = None
            self.connected.clear()
        return await self._closed(closed)

    async def _connection(self, credential: CredentialFile) -> Closed:
        async with self.dialer.dial() as (dial, http):
            socket = await open_socket(http, dial.base_url, credential.credential, {})
            headers = {"Authorization": f"Bearer {credential.credential}"}
            self._dial = dial
            self._way = Way(
                http=http,
                base_url=dial.base_url.rstrip("/"),
                headers=headers,
                diagnose=self.dialer.diagnose,
            )
            self.session = AgentSession(socket, self._duty, self._clock, self._log)
            if self._stopping.is_set():
                self.session.drop("the agent stops")
            return await self.session.run()

    async def accepted(self) -> None:
        """The control plane welcomed us over the dial of now."""
        assert self._dial is not None
        self.dialer.accepted()
        if not self._warned and self._dial.trust().kind is TrustKind.CLEAR:
            self._warned = True
            self._warn(PLAIN_WARNING)
        await self._keep(self._dial)
        self.connected.set()
        self.welcomes += 1
        self._next_welcome.set()
        self._next_welcome = asyncio.Event()
        self._away.cancel()
        await self.dialer.notice(AgentEventKind.ACCEPTED)

    @property
    def dial(self) -> Dial | None:
        return self._dial

    # ------------------------------------------------------------ what failures mean

    async def _refused_by_http(
        self, error: aiohttp.WSServerHandshakeError, credential: CredentialFile
    ) -> tuple[Ending | None, float]:
        header = error.headers.get(REFUSAL_HEADER) if error.headers else None
        if header == RefusalCode.UNKNOWN_CREDENTIAL and self._unknown is not None and await self._unknown():
            return None, 0.0
        advice = of_status(
            error.status,
            header,
            url=self.dialer.url(),
            file=self._file,
            credential=credential.credential,
        )
        if header is not None:
            await self.dialer.notice(AgentEventKind.CREDENTIAL_REFUSED, header)
        self._problem(advice.message)
        if advice.exit_code is not None:
            revoked = header == RefusalCode.REVOKED
            return Ending(exit_code=advice.exit_code, message=advice.message, revoked=revoked), 0.0
        return None, self._backoff.next_s(self._grace_s())

    async def _failed(self, error: BaseException) -> tuple[Ending | None, float]:
        problem = await self.dialer.diagnose(error, Purpose.SESSION)
        self._problem(problem.message)
        if problem.exit_code is not None:
            return Ending(exit_code=problem.exit_code, message=problem.message), 0.0
        return None, self._pause_s()

    async def _closed(self, closed: Closed) -> tuple[Ending | None, float]:
        if closed.welcomed:
            self._lonely()
            await self.dialer.notice(AgentEventKind.DISCONNECTED, closed.why)
            if closed.online_s >= RESET_AFTER_S:
                self._backoff.reset()
        if closed.refused is not None:
            return await self._refused(closed.refused)
        if self._stopping.is_set():
            return Ending(exit_code=0), 0.0
        self._log.warning("disconnected: %s", closed.why)
        bye = closed.bye
        if bye is not None and bye.reason == "revoked":
            message = "The control plane revoked this worker's credential: it was removed or re-keyed there."
            return Ending(exit_code=FATAL_STATUS, message=message, revoked=True), 0.0
        if bye is not None and bye.reason == "run_gone":
            return Ending(exit_code=FATAL_STATUS, message=RUN_GONE), 0.0
        if bye is not None and bye.reason == "replaced":
            self._log.warning("a newer connection of this agent took over")
        if bye is not None and bye.reason == "restart":
            self._soon_until = self._clock.monotonic() + (bye.back_within_s or 0.0)
        return None, self._pause_s()

    def _pause_s(self) -> float:
        """Short while the control plane means to be back from a planned restart."""
        if self._clock.monotonic() < self._soon_until:
            return self._backoff.soon_s()
        return self._backoff.next_s(self._grace_s())

    async def _refused(self, refused: Refused) -> tuple[Ending | None, float]:
        self._problem(f"The control plane refused this agent: {refused.reason}")
        if refused.code is RefusalCode.OTHER_NAME:
            await self.dialer.notice(AgentEventKind.CREDENTIAL_OF_OTHER_NAME, refused.reason)
        if refused.retry == "never":
            revoked = refused.code is RefusalCode.REVOKED
            return Ending(exit_code=FATAL_STATUS, message=self.last_problem, revoked=revoked), 0.0
        wait_s = self._backoff.next_s(self._grace_s())
        return None, max(wait_s, refused.after_s or 0.0)

    def _problem(self, message: str) -> None:
        """Said once as long as it stays the same."""
        level = logging.DEBUG if message == self.last_problem else logging.WARNING
        self._log.log(level, "%s", message)
        self.last_problem = message
