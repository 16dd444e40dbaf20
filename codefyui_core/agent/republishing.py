"""Goes on with the files of an attempt whose processes had ended before this agent was started."""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from codefyui_core.errors import CodefyError, Refused
from codefyui_core.ids import RunId, WorkerId
from codefyui_core.plugin.storage import Notes, Output, Progress, Receipt, StorageSession, Workspace
from codefyui_core.plugin.views import AttemptView
from codefyui_core.wire.messages import ExitedItem, ItemKind

from .attempts import Attempt
from .carrying.halt import Halt
from .carrying.opening import Opening
from .carrying.transfers import Work, open_transfers, tries_of, warn_undelivered
from .equipment import Equipment
from .machine import Effect
from .stream import item


class Republishing:
    """Implements ``Life``. Waits for the ticket, delivers what is left, and writes the end that was written down."""

    records_outputs = False

    def __init__(self, attempt: Attempt, with_: Equipment, log: logging.Logger) -> None:
        head = attempt.head
        assert attempt.path is not None
        assert attempt.stream is not None
        assert head.backend is not None
        self._attempt = attempt
        self._with = with_
        self._log = log
        self._halt = Halt()
        self._backend, self._half = with_.halves[head.backend]
        view = AttemptView(run_id=RunId(head.run_id), number=head.attempt, worker_id=WorkerId(head.worker_id))
        self._opening = Opening(view, self._backend, self._half, attempt.grants, log)
        self._work = Work(
            key=attempt.key,
            backend=head.backend,
            parallel=max(1, self._half.parallel),
            grace_s=head.grace_s,
            grants=attempt.grants,
            stream=attempt.stream,
            spool=attempt.path,
        )

    def do(self, effects: Iterable[Effect]) -> None:
        if Effect.DROP_FILES in effects:
            self._halt.give()

    async def renewed(self) -> None:
        await self._opening.renewed()

    async def life(self) -> None:
        """Raises nothing but cancellation."""
        left, stream = self._attempt.left, self._work.stream
        await self._say_exited()
        for event in () if left is None else left.told:
            await stream.append(ItemKind.EVENT, event, must_sync=True)
        try:
            try:
                await self._publish()
            except CodefyError as error:
                await self._leave_all(error.message)
        except Exception as error:
            self._log.exception("run %s: its files can't all be delivered", self._work.key.run_id)
            await warn_undelivered(self._work, self._with.carrying, error)
        await self._attempt.end()

    async def _say_exited(self) -> None:
        """The process before may have got no further than writing down how the run's processes ended."""
        spool, end = self._work.stream.spool, self._attempt.lost_end
        if end is None or ItemKind.EXITED in spool.kinds or spool.first_kept > 1:
            return
        told = ExitedItem(exit_code=end.exit_code, signal=end.signal, out_of_memory=end.out_of_memory)
        exited = item(ItemKind.EXITED, told.model_dump(mode="json"))
        await self._work.stream.append(ItemKind.EXITED, exited)

    async def _publish(self) -> None:
        """Raises: CodefyError when the session can't be opened."""
        async with AsyncExitStack() as stack:
            tries = tries_of(self._work, self._with.carrying, self._halt, self._log)
            stack.callback(tries.close)
            await tries.ticket()
            session = await self._open(stack)
            await self._finish(session, self._halt)

    async def _open(self, stack: AsyncExitStack) -> StorageSession[Any, Any]:
        try:
            ticket = self._backend.ticket.model_validate(self._attempt.grants.ticket)
        except ValidationError as error:
            raise Refused(f"its storage ticket can't be read: {error}") from error
        return await self._opening.open(stack, ticket)

    async def _finish(self, session: StorageSession[Any, Any], halt: Halt) -> None:
        opening = open_transfers(self._work, session, self._with.carrying, halt=halt, log=self._log)
        async with opening as transfers:
            await transfers.finish()

    async def _leave_all(self, why: str) -> None:
        """List what is left with its place on this machine."""
        self._log.warning("run %s: its files stay on this machine: %s", self._work.key.run_id, why)
        workspace = await asyncio.to_thread(self._with.folders.private, self._work.key.run_id)
        halt = Halt()
        halt.give()
        await self._finish(_Nowhere(workspace), halt)


class _Nowhere(StorageSession[Receipt, Any]):
    """Takes nothing."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    async def publish(self, output: Output, path: Path, notes: Notes, progress: Progress) -> Receipt:
        raise Refused("nothing is sent any more")
