"""The credential of this machine at a control plane: found, enrolled for once, renewed, and kept.

Agents that start together with one token take turns: the first enrolls, the others use the credential that it
stored.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from codefyui_core.errors import CodefyError, LinkProblem, StartProblem
from codefyui_core.plugin.connector import AgentEventKind, Dial

from .advice import FATAL_STATUS
from .credentials import CredentialFile, load, save
from .dialer import Dialer
from .enroll import NotEnrolled, enroll
from .identity import default_name
from .lock import AlreadyRunning, FolderLock
from .places import Places
from .plan import AgentPlan
from .same_host import Server, ask_for_token

TURN_S = (0.05, 0.25)
"""Between two looks whether the one who enrolls is done."""
WINNER_S = 30.0
"""Where there are no locks: for the credential of who was faster."""
_LOST = frozenset({"enrollment.used_up", "enrollment.name_taken"})
log = logging.getLogger("codefyui.agent")


class Membership:
    """``credential`` is empty until ``join`` has returned."""

    def __init__(self, plan: AgentPlan, places: Places, server: Server, token: str | None) -> None:
        self.credential = CredentialFile()
        self._plan = plan
        self._places = places
        self._server = server
        self._token = token

    async def current(self) -> CredentialFile:
        return self.credential

    async def join(self, dialer: Dialer) -> None:
        """Raises: CodefyError."""
        if await self._found(dialer):
            return
        try:
            async with self._turn() as locked:
                if not await self._found(dialer):
                    await (self._enroll(dialer) if locked else self._enroll_unlocked(dialer))
        except LinkProblem as error:
            if self._plan.one_shot and error.exit_code != FATAL_STATUS:
                raise StartProblem(error.message, code=error.code) from error
            raise

    async def again(self, dialer: Dialer) -> bool:
        """The server of the same user data has a new database: nobody has to be asked. False: it stays so."""
        if self._plan.url is not None:
            return False
        refused = self.credential.credential
        try:
            async with self._turn():
                stored = await self._stored()
                if stored is not None and stored.credential != refused:
                    self.credential = stored
                    return True
                await asyncio.to_thread(self._places.credential.unlink, missing_ok=True)
                await self._enroll_here(dialer)
        except (CodefyError, OSError) as error:
            log.warning("enrolling again failed: %s", error)
            return False
        return True

    async def keep(self, dialer: Dialer, dial: Dial) -> None:
        """Accepted over this dial: what its connector wants kept is stored with the credential."""
        kept = self.credential.keeping(dialer.name, dial.keep)
        if kept != self.credential:
            self.credential = kept
            await asyncio.to_thread(save, self._places.credential, kept)

    # ------------------------------------------------------------ what is stored

    async def _stored(self) -> CredentialFile | None:
        stored = await asyncio.to_thread(load, self._places.credential, log)
        return stored if stored is not None and stored.enrolled else None

    async def _found(self, dialer: Dialer) -> bool:
        stored = await self._stored()
        if stored is None:
            return False
        self._check_connector(stored, dialer)
        await self._check_name(stored, dialer)
        self.credential = stored
        return True

    def _check_connector(self, stored: CredentialFile, dialer: Dialer) -> None:
        """What one connector trusts must not be given up because another one dials, if the plugin is gone or blocked."""
        of = next((name for name in stored.keep.connector if name != dialer.name and stored.kept(name)), None)
        if of is None:
            return
        url = self._plan.url or dialer.url()
        raise StartProblem(
            f"{self._places.credential} holds what the connector {of} trusts, and {dialer.name} would dial {url} "
            f"without it. Install the plugin of {of} or unblock it; or run cdui agent forget {url} and enroll again."
        )

    async def _check_name(self, stored: CredentialFile, dialer: Dialer) -> None:
        if self._plan.name is None or self._plan.name.lower() == stored.name.lower():
            return
        message = (
            f"The stored credential belongs to the worker {stored.name}. Leave --name out, or run "
            f"cdui agent forget {self._plan.url or ''} to enroll as {self._plan.name}."
        )
        await dialer.notice(AgentEventKind.CREDENTIAL_OF_OTHER_NAME, stored.name)
        raise LinkProblem(message, exit_code=FATAL_STATUS)

    # ------------------------------------------------------------ enrollment

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[bool]:
        """One at a time; False where there are no locks."""
        while True:
            try:
                lock = await asyncio.to_thread(FolderLock.take, self._places.enrolling)
                break
            except AlreadyRunning:
                await asyncio.sleep(random.uniform(*TURN_S))
        try:
            yield lock.works
        finally:
            lock.release()

    async def _enroll(self, dialer: Dialer, *, alone: bool = True) -> None:
        if self._plan.url is None:
            await self._enroll_here(dialer)
            return
        if not self._token:
            raise StartProblem(
                f"This machine has no credential for {self._plan.url}. Generate a token with Add worker in "
                f"the Workers panel (or cdui workers token) and start with --token <token>."
            )
        name = self._plan.name or default_name()
        self.credential = await enroll(
            dialer, file=self._places.credential, token=self._token, name=name, log=log, alone=alone
        )
        log.info("enrolled as %s", self.credential.name)

    async def _enroll_here(self, dialer: Dialer) -> None:
        name = self._plan.name or default_name()
        async with dialer.dial() as (_, http):
            token = await ask_for_token(http, self._server, name)
        self.credential = await enroll(dialer, file=self._places.credential, token=token, name=name, log=log)

    async def _enroll_unlocked(self, dialer: Dialer) -> None:
        """Others may be enrolling at the same time. Who loses waits for the winner's file."""
        log.warning("this file system has no locks: enroll once before agents are started together")
        try:
            await self._enroll(dialer, alone=not self._plan.one_shot)
        except NotEnrolled as error:
            if error.code not in _LOST or not await self._winner(dialer):
                raise

    async def _winner(self, dialer: Dialer) -> bool:
        deadline = asyncio.get_running_loop().time() + WINNER_S
        while not await self._found(dialer):
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(random.uniform(*TURN_S))
        return True
