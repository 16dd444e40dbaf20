"""Carries one attempt from its assignment to its end: folders, process, lines, outputs, end."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from codefyui_core.errors import CodefyError, StorageProblem
from codefyui_core.ids import RunId, WorkerId
from codefyui_core.outputs import OutputStore
from codefyui_core.plugin.storage import AnyBackend, Output, StorageAgent, StorageSession, Workspace
from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import AttemptView
from codefyui_core.runner.api import NOT_RECORDED, Ending, Go, Launch, RunProcess, RunStarter, record_spec
from codefyui_core.runs.events import EventType
from codefyui_core.runs.spoken import Spoken, read_line, said_text, unreadable
from codefyui_core.runs.status import Cause, Outcome, StopReason
from codefyui_core.wire.limits import EVENT_BYTES
from codefyui_core.wire.messages import AcceptedItem, Assign, DeviceInfo, EndItem, ExitedItem, ItemKind

from .attempts import Attempt
from .devices import computes_on, narrowed_environ
from .folder import write_outcome
from .machine import Effect, State
from .publishing import NoNotes, Quiet
from .stream import item
from .workspaces import AgentFolders

LOST = "run.process_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """What every run on this agent is made with."""

    starter: RunStarter
    folders: AgentFolders
    halves: Mapping[str, tuple[AnyBackend, StorageAgent]]
    devices: tuple[DeviceInfo, ...]
    incarnation: str
    fingerprint: str | None
    plugins_block: tuple[str, ...] = ()
    plugins_only: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    """Settings that runs obey."""
    outputs: OutputStore
    """Where runs leave the outputs that they record."""
    writes_for_s: float
    """How long they may take for it, after their outcome."""
    room: Callable[[], Awaitable[None]]
    """Returns once the disk has room for more events; until then the run is held at its pipe."""


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
        self._session: StorageSession[Any, Any] | None = None
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
                case _:
                    pass  # the life looks at the machine itself

    async def renewed(self, grant: JsonObject) -> None:
        """New credentials for the session."""
        if self._session is None or self._assign.backend is None:
            return
        backend, _ = self._with.halves[self._assign.backend]
        try:
            await self._session.renewed(backend.grant.model_validate(grant))
        except Exception:
            self._log.exception("run %s: its new grant can't be used", self._assign.run_id)

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
        ticket = backend.ticket.model_validate(assign.ticket)
        grant = None if assign.grant is None else backend.grant.model_validate(assign.grant)
        session = await stack.enter_async_context(half.open(self._view, ticket, grant))
        self._session = session
        return session.workspace

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
            await self._unreadable(line, error)
            return
        if said.kind == "outcome":
            self._outcome = said.payload
        elif said.type == EventType.ARTIFACT:
            await self._artifact(said)
        else:
            await self._say(ItemKind(said.kind), line, said)

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
        payload = dict(said.payload)
        if self._session is not None:
            payload |= await self._publish(self._session, payload)
        event = item(ItemKind.EVENT, payload, type="artifact", ts=said.ts)
        await self._say(ItemKind.EVENT, event, said, must_sync=True)

    async def _publish(self, session: StorageSession[Any, Any], payload: dict[str, Any]) -> dict[str, Any]:
        try:
            path = Path(payload["path"])
            relative = session.workspace.folders.relative(path) or payload.get("relative_path")
            if relative is None:
                return {"state": "on_worker"}
            output = Output(
                key=payload["artifact_id"],
                kind=payload["kind"],
                name=payload.get("name") or PurePosixPath(relative).name,
                relative_path=relative,
                node_id=payload.get("node_id"),
                size_bytes=payload.get("size_bytes"),
            )
            receipt = await session.publish(output, path, NoNotes(), Quiet())
        except (StorageProblem, OSError, KeyError, TypeError, ValueError) as error:
            self._log.warning("run %s: a file stays on this machine: %s", self._assign.run_id, error)
            await self._warn_left(payload, error)
            return {"state": "on_worker"}
        return {
            "backend": self._assign.backend,
            "relative_path": relative,
            "state": "stored",
            "receipt": receipt.model_dump(mode="json"),
        }

    async def _warn_left(self, payload: dict[str, Any], error: BaseException) -> None:
        detail = f"{payload.get('name', 'a file')} stays on the worker: {error}"
        warning = {"kind": "transfer_failed", "count": 1, "detail": detail}
        await self._stream.append(ItemKind.EVENT, item(ItemKind.EVENT, warning, type="run_warning"))

    # ------------------------------------------------------------ its end

    async def _conclude(self, ending: Ending | None) -> None:
        machine = self._attempt.machine
        end = self._end(ending)
        if machine.state is State.RECEIVED:
            return  # ``accepted`` never got to the disk: nothing is known of it
        if ending is None:
            machine.never_started()
        else:
            assert self._attempt.path is not None
            if self.records_outputs:
                await self._settle_outputs()
            await _tried(asyncio.to_thread(write_outcome, self._attempt.path, end))
            machine.process_gone()
            await self._stream.append(ItemKind.EXITED, item(ItemKind.EXITED, _exited(ending)))
        machine.published()
        seq = await self._stream.append(ItemKind.END, item(ItemKind.END, end.model_dump(mode="json")))
        self._attempt._do(machine.ended(seq))

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

    def _end(self, ending: Ending | None) -> EndItem:
        machine = self._attempt.machine
        end = EndItem(
            outcome=_outcome(self._outcome.get("outcome")),
            error=said_text(self._outcome.get("error")),
            cause=said_text(self._outcome.get("cause")),
            stop_reason=machine.stop_reason,
            grace_s=machine.grace_s,
        )
        if ending is not None:
            known = {
                "exit_code": ending.exit_code,
                "signal": ending.signal,
                "out_of_memory": ending.out_of_memory,
                "stopped_in_time": ending.stopped_in_time,
            }
            end = end.model_copy(update=known)
        if self._failure is not None and end.outcome is None and machine.stop_reason is None:
            failed = {"outcome": Outcome.FAILED, "error": self._failure.message}
            end = end.model_copy(update=failed | {"cause": _cause(self._failure)})
        return end

    @property
    def _stream(self) -> Any:
        assert self._attempt.stream is not None
        return self._attempt.stream


def _exited(ending: Ending) -> dict[str, Any]:
    told = ExitedItem(
        exit_code=ending.exit_code,
        signal=ending.signal,
        out_of_memory=ending.out_of_memory,
        peak_memory_bytes=ending.peak_memory_bytes,
        stderr_tail=ending.stderr_tail,
    )
    return told.model_dump(mode="json")


def _outcome(value: object) -> Outcome | None:
    return Outcome(value) if isinstance(value, str) and value in set(Outcome) else None


def _cause(error: CodefyError) -> str:
    return Cause.STORAGE if isinstance(error, StorageProblem) else Cause.USER_CODE


async def _tried(work: Any) -> None:
    try:
        await work
    except OSError:
        return  # the end itself follows in the stream
