"""Carries one attempt from its assignment to its end: folders, process, lines, outputs, end."""

import asyncio
import logging
import os
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Any

from codefyui_core.errors import CodefyError, TransferStopped
from codefyui_core.ids import RunId, WorkerId
from codefyui_core.plugin.storage import StorageKind, StorageSession, Ticket, Workspace
from codefyui_core.plugin.views import AttemptView
from codefyui_core.runner.api import NOT_RECORDED, Ending, Go, Launch, RunProcess, record_spec
from codefyui_core.runs.events import EventType
from codefyui_core.runs.spoken import Spoken, read_line, unreadable
from codefyui_core.runs.status import StopReason
from codefyui_core.wire.limits import EVENT_BYTES
from codefyui_core.wire.messages import AcceptedItem, Assign, ItemKind

from .attempts import Attempt
from .carrying.halt import Halt
from .carrying.opening import Opening
from .carrying.transfers import Transfers, Work, open_transfers, tries_of, warn_undelivered
from .carrying.tries import Tries
from .devices import computes_on, narrowed_environ
from .ending import end_of, exited
from .equipment import Equipment
from .folder import write_outcome
from .machine import Effect, State
from .publishing import publish_in_place
from .stream import item

LOST = "run.process_lost"
IN_PLACE_S = 60.0
"""The longest that a file waits for a shared folder that is away: its run's lines wait behind it."""


class Driver:
    """One attempt's life. ``assign`` holds secrets, so it lives in memory only and goes with the driver."""

    def __init__(
        self, attempt: Attempt, assign: Assign, worker_id: str, with_: Equipment, log: logging.Logger
    ) -> None:
        self._attempt = attempt
        self._assign = assign
        self._with = with_
        self._log = log
        self._view = AttemptView(
            run_id=RunId(assign.run_id), number=assign.attempt, worker_id=WorkerId(worker_id)
        )
        self._process: RunProcess | None = None
        self._go = asyncio.Event()
        self._outcome: dict[str, Any] = {}
        self._failure: CodefyError | None = None
        self._opening: Opening | None = None
        self._halt = Halt()
        self._transfers: Transfers | None = None
        self._in_place: Tries | None = None
        self._stops: set[asyncio.Task[None]] = set()

    @property
    def records_outputs(self) -> bool:
        return bool(self._assign.options.get("record_outputs"))

    # ------------------------------------------------------------ what the machine asks for

    def do(self, effects: Iterable[Effect]) -> None:
        """From events that come while the life below goes on."""
        for effect in effects:
            match effect:
                case Effect.GO:
                    self._go.set()
                case Effect.STOP_PROCESS:
                    self._stop_process()
                case Effect.ABANDON | Effect.DROP_FILES:
                    self._halt.give()
                case _:
                    pass  # the life looks at the machine itself

    async def renewed(self) -> None:
        """There are new credentials for the session."""
        if self._opening is not None:
            await self._opening.renewed()

    def _stop_process(self) -> None:
        if self._process is not None:
            machine = self._attempt.machine
            if self.records_outputs and machine.stop_reason is StopReason.AGENT_STOP:
                stopping = self._process.stop(machine.grace_s, lets_write=True)
            else:
                stopping = self._process.stop(machine.grace_s)
            task = asyncio.ensure_future(stopping)
            self._stops.add(task)
            task.add_done_callback(self._stops.discard)

    # ------------------------------------------------------------ its life

    async def life(self) -> None:
        """From ``received`` to ``ended``. Raises nothing: what goes wrong ends the run."""
        ending: Ending | None = None
        async with AsyncExitStack() as stack:
            try:
                ending = await self._execute(stack)
            except TransferStopped:
                pass  # asked to stop while its inputs were fetched: the end says by whom
            except CodefyError as error:
                self._failure = error
                ending = await self._end_process()
            except Exception as error:
                self._log.exception("run %s failed on the agent's side", self._assign.run_id)
                self._failure = CodefyError(f"the agent failed: {error}")
                ending = await self._end_process()
            await self._conclude(ending)
        await asyncio.gather(*self._stops, return_exceptions=True)

    async def _end_process(self) -> Ending | None:
        if self._process is None:
            return None
        await self._process.kill()
        return await self._process.ended()

    async def _execute(self, stack: AsyncExitStack) -> Ending | None:
        await self._accept()
        if Effect.PREPARE not in self._attempt.machine.accepted():
            return None
        workspace = await self._workspace(stack)
        for again in (True, False):
            if self._attempt.machine.stop_reason is not None:
                return None
            try:
                return await self._run(workspace)
            except CodefyError as error:
                if error.code != LOST or not again or self._go.is_set():
                    raise
                self._log.warning("run %s: its process was lost before it began", self._assign.run_id)
        raise AssertionError

    async def _accept(self) -> None:
        stream = self._stream
        accepted = AcceptedItem(
            incarnation=self._with.incarnation,
            devices=self._assign.devices,
            fingerprint=self._with.fingerprint,
        )
        payload = item(ItemKind.ACCEPTED, accepted.model_dump(mode="json"))
        await stream.durable(await stream.append(ItemKind.ACCEPTED, payload))

    async def _workspace(self, stack: AsyncExitStack) -> Workspace:
        assign = self._assign
        if assign.backend is None or assign.ticket is None:
            return self._with.folders.own()
        backend, half = self._with.halves[assign.backend]
        carried = backend.kind is StorageKind.CARRIER
        if carried:
            await asyncio.to_thread(self._with.folders.clear, assign.run_id)
        ticket = backend.ticket.model_validate(assign.ticket)
        opening = self._opening = Opening(self._view, backend, half, self._attempt.grants, self._log)
        session = await opening.open(stack, ticket)
        if carried or session.workspace.private:
            await self._fetch(stack, session, ticket, half.parallel)
        else:
            work = self._work(half.parallel, min(self._attempt.head.grace_s, IN_PLACE_S))
            self._in_place = tries_of(work, self._with.carrying, self._halt, self._log)
            stack.callback(self._in_place.close)
        return session.workspace

    def _work(self, parallel: int, grace_s: float) -> Work:
        attempt = self._attempt
        assert attempt.path is not None
        assert self._assign.backend is not None
        return Work(
            key=attempt.key,
            backend=self._assign.backend,
            parallel=max(1, parallel),
            grace_s=grace_s,
            grants=attempt.grants,
            stream=self._stream,
            spool=attempt.path,
        )

    async def _fetch(
        self, stack: AsyncExitStack, session: StorageSession[Any, Any], ticket: Ticket, parallel: int
    ) -> None:
        work = self._work(parallel, self._attempt.head.grace_s)
        opening = open_transfers(
            work, session, self._with.carrying, halt=self._halt, inputs=ticket.inputs, log=self._log
        )
        self._transfers = await stack.enter_async_context(opening)
        await self._transfers.fetch()

    async def _run(self, workspace: Workspace) -> Ending:
        machine = self._attempt.machine
        process = self._process = await self._with.starter.launch(self._launch())
        self.do(machine.launched())
        try:
            await process.ready()
        except CodefyError:
            if machine.stop_reason is None:
                self._process = None
                raise
            return await self._read(process)
        self.do(machine.prepared())
        ended = asyncio.ensure_future(process.ended())
        go = asyncio.ensure_future(self._go.wait())
        await asyncio.wait({ended, go}, return_when=asyncio.FIRST_COMPLETED)
        go.cancel()
        if self._go.is_set() and not ended.done():
            await process.go(await asyncio.to_thread(self._message, workspace))
        return await self._read(process)

    async def _read(self, process: RunProcess) -> Ending:
        async for line in process.lines():
            await self._line(line)
        await self._recorded()
        return await process.ended()

    def _launch(self) -> Launch:
        devices = self._assign.devices
        return Launch(
            run_id=self._assign.run_id,
            attempt=self._assign.attempt,
            work_dir=self._with.folders.base,
            env={**self._with.environ, **narrowed_environ(devices, self._with.devices, os.environ)},
            writes_for_s=self._with.writes_for_s if self.records_outputs else None,
        )

    def _message(self, workspace: Workspace) -> Go:
        assign = self._assign
        return Go(
            run_id=assign.run_id,
            attempt=assign.attempt,
            document=assign.graph,
            options=assign.options,
            device=computes_on(assign.devices),
            devices=assign.devices,
            folders=self._with.folders.spec(workspace),
            record=record_spec(self._with.outputs) if self.records_outputs else None,
            plugins_block=self._with.plugins_block,
            plugins_only=self._with.plugins_only,
        )

    # ------------------------------------------------------------ what the run says

    async def _line(self, line: bytes) -> None:
        await self._with.room()
        try:
            said = read_line(line)
        except ValueError as error:
            await self._recorded()
            await self._unreadable(line, error)
            return
        if said.kind == "outcome":
            self._outcome = said.payload
        elif said.type == EventType.ARTIFACT:
            await self._artifact(said)
        else:
            await self._recorded()
            await self._say(ItemKind(said.kind), line, said)

    async def _recorded(self) -> None:
        """What a run says after a file is told only when the file can't be lost any more; files that it reports one after
        the other are written down together.
        """
        if self._transfers is not None:
            await self._transfers.recorded()

    async def _unreadable(self, line: bytes, error: ValueError) -> None:
        self._log.warning("run %s wrote an unreadable line: %.300s", self._assign.run_id, error)
        note = item(ItemKind.EVENT, unreadable(line, error), type=EventType.UNSTORABLE)
        await self._stream.append(ItemKind.EVENT, note)

    async def _say(self, kind: ItemKind, text: bytes, said: Spoken, *, must_sync: bool = False) -> None:
        """An item of the run, or its size in its place."""
        if len(text) > EVENT_BYTES:
            large = {"type": said.type or said.kind, "bytes": len(text)}
            kind, text = ItemKind.EVENT, item(ItemKind.EVENT, large, type="event_too_large", ts=said.ts)
        await self._stream.append(kind, text, must_sync=must_sync)

    async def _artifact(self, said: Spoken) -> None:
        """Told of once it is where it goes, or given up."""
        if self._transfers is not None:
            await self._transfers.record(said.payload, said.ts)
            return
        payload = dict(said.payload)
        if self._opening is not None and self._opening.session is not None:
            assert self._assign.backend is not None
            session, backend = self._opening.session, self._assign.backend
            assert self._in_place is not None
            tries = self._in_place
            payload |= await publish_in_place(session, backend, payload, tries, self._stream, self._log)
        event = item(ItemKind.EVENT, payload, type="artifact", ts=said.ts)
        await self._say(ItemKind.EVENT, event, said, must_sync=True)

    # ------------------------------------------------------------ its end

    async def _conclude(self, ending: Ending | None) -> None:
        machine = self._attempt.machine
        end = end_of(machine, self._outcome, ending, self._failure)
        if machine.state is State.RECEIVED:
            return  # ``accepted`` never got to the disk: nothing is known of it
        if ending is None:
            machine.never_started()
        else:
            assert self._attempt.path is not None
            if self.records_outputs:
                await self._settle_outputs()
            if self._transfers is not None:
                await self._transfers.hold()
            await _tried(asyncio.to_thread(write_outcome, self._attempt.path, end))
            machine.process_gone()
            await self._stream.append(ItemKind.EXITED, item(ItemKind.EXITED, exited(ending)))
            if self._transfers is not None:
                await self._deliver(self._transfers)
        machine.published()
        seq = await self._stream.append(ItemKind.END, item(ItemKind.END, end.model_dump(mode="json")))
        self._attempt._do(machine.ended(seq))

    async def _deliver(self, transfers: Transfers) -> None:
        """However that goes, the run's end follows."""
        try:
            await transfers.finish()
        except Exception as error:
            self._log.exception("run %s: its files can't all be delivered", self._assign.run_id)
            work = self._work(1, self._attempt.head.grace_s)
            await warn_undelivered(work, self._with.carrying, error)

    async def _settle_outputs(self) -> None:
        """Its processes are gone: what they recorded is whole, or isn't kept."""
        try:
            kept = await asyncio.to_thread(self._with.outputs.settle, self._assign.run_id)
        except OSError as error:
            self._log.warning("run %s: its recorded outputs can't be settled: %s", self._assign.run_id, error)
            kept = False
        if not kept and self._outcome:
            warning = item(ItemKind.EVENT, NOT_RECORDED, type="run_warning")
            await self._stream.append(ItemKind.EVENT, warning)

    @property
    def _stream(self) -> Any:
        assert self._attempt.stream is not None
        return self._attempt.stream


async def _tried(work: Any) -> None:
    try:
        await work
    except OSError:
        return  # the end itself follows in the stream
