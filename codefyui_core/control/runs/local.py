"""The server's own runs: a process each, whose lines are numbered in memory and go through the same fold."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codefyui_core.clocks import AttentiveClock
from codefyui_core.errors import CodefyError
from codefyui_core.files import Folders
from codefyui_core.outputs import OutputStore
from codefyui_core.plugin.values import JsonObject
from codefyui_core.runner.api import NOT_RECORDED, Ending, Go, Launch, RunProcess, RunStarter, record_spec
from codefyui_core.runner.install_folders import folder_spec
from codefyui_core.runs.events import EventType
from codefyui_core.runs.queue import kind_of
from codefyui_core.runs.spoken import read_line, said_text, unreadable
from codefyui_core.runs.status import Cause, Outcome, StopReason
from codefyui_core.settings import ControlSettings, Install, environment_of_runs
from codefyui_core.wire.messages import DeviceInfo, Item, ItemKind

from .fold import Batch, Fold
from .stream import Gap
from .writer import PASSING

MAX_BUFFER = 4 << 20
"""Bytes of a run's lines that wait for the database; then the run is held at its pipe."""
MAX_BATCH = 256 << 10
MAX_ITEMS = 500
RETRY_S = 1.0
WRITES_FOR_S = 300.0
"""The longest that a run may take to write what it recorded, after its outcome."""


class Buffer:
    """Lines between the pipe and the database."""

    def __init__(self, limit: int = MAX_BUFFER) -> None:
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._limit = limit
        self._closed = False
        self._changed = asyncio.Condition()

    async def put(self, line: bytes) -> None:
        """Waits while the buffer is full."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._bytes < self._limit)
            self._lines.append(line)
            self._bytes += len(line)
            self._changed.notify_all()

    async def close(self) -> None:
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    async def take(self) -> list[bytes]:
        """All that fits a batch, as soon as there is something; empty at the end."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._lines or self._closed)
            taken: list[bytes] = []
            size = 0
            while self._lines and len(taken) < MAX_ITEMS and size < MAX_BATCH:
                taken.append(self._lines.popleft())
                size += len(taken[-1])
            self._bytes -= size
            self._changed.notify_all()
            return taken


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRun:
    """A run to be executed here."""

    run_id: str
    attempt: int
    document: JsonObject
    options: JsonObject
    devices: tuple[str, ...]

    @property
    def records_outputs(self) -> bool:
        return bool(self.options.get("record_outputs"))


@dataclass(slots=True)
class Said:
    """What the process said of its own end."""

    outcome: Outcome | None = None
    error: str | None = None
    cause: str | None = None


class Execution:
    """One own run, from its process to its end."""

    def __init__(self, run: OwnRun, around: "OwnRuns") -> None:
        self.run_info = run
        self._around = around
        self._seq = 0
        self._process: RunProcess | None = None
        self._said = Said()
        self._stop: StopReason | None = None
        self._grace_s = 10.0
        self.ended = asyncio.Event()

    async def run(self) -> None:
        """Never raises: whatever goes wrong ends the run as failed."""
        try:
            await self._execute()
        except Exception as error:
            self._around.log.exception("run %s failed on the server's side", self.run_info.run_id)
            await self._give_up(error)
        finally:
            self.ended.set()

    async def stop(self, reason: StopReason, grace_s: float) -> None:
        """Ask the process to end; the reason that was given first stays, but for a user's."""
        if self._stop is None or reason is StopReason.USER:
            self._stop = reason
        self._grace_s = grace_s
        if self._process is not None:
            await self._process.stop(grace_s)

    async def kill(self) -> None:
        """End the process at once; what it said before stands."""
        self._grace_s = 0.0
        if self._process is not None:
            await self._process.kill()

    async def _execute(self) -> None:
        await self._commit([_item(ItemKind.ACCEPTED, {"incarnation": "", "devices": self.run_info.devices})])
        if self._stop is not None:
            await self._end(None)
            return
        process = await self._start()
        if self._stop is not None:
            await process.stop(self._grace_s)
        await process.go(self._around.go(self.run_info))
        await self._pump(process)
        ending = await process.ended()
        if self.run_info.records_outputs:
            await self._settle_outputs()
        await self._end(ending)

    async def _settle_outputs(self) -> None:
        """Its processes are gone: what they recorded is whole, or isn't kept."""
        try:
            kept = await asyncio.to_thread(self._around.outputs.settle, self.run_info.run_id)
        except OSError:
            self._around.log.exception("recorded outputs of run %s can't be settled", self.run_info.run_id)
            kept = False
        if not kept and self._said.outcome is not None:
            await self._commit([_item(ItemKind.EVENT, NOT_RECORDED, EventType.WARNING)])

    async def _start(self) -> RunProcess:
        """A process that waits for its go. One that is lost before is tried once more: nothing ran."""
        for attempt in (1, 2):
            try:
                process = await self._around.starter.launch(self._around.launch(self.run_info))
                self._process = process
                await process.ready()
                return process
            except CodefyError as error:
                if error.code != "run.process_lost" or attempt == 2:
                    raise
                self._around.log.warning("run %s: its process was lost; trying again", self.run_info.run_id)
        raise AssertionError

    async def _pump(self, process: RunProcess) -> None:
        buffer = Buffer()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read(process, buffer))
            while lines := await buffer.take():
                items = [item for line in lines for item in await self._items(line)]
                if items:
                    await self._commit(items, size=sum(map(len, lines)))

    async def _read(self, process: RunProcess, buffer: Buffer) -> None:
        try:
            async for line in process.lines():
                await buffer.put(line)
        finally:
            await buffer.close()

    async def _items(self, line: bytes) -> Sequence[Item]:
        """The item that a line is; none for the outcome, which is kept for the end."""
        try:
            said = read_line(line)
            if said.kind == "outcome":
                self._keep(said.payload)
                return ()
            payload = said.payload
            if said.type == EventType.ARTIFACT:
                payload = await asyncio.to_thread(own_artifact, payload, self._around.folders)
        except (KeyError, ValueError, TypeError, OSError) as error:
            self._around.log.warning("run %s wrote an unreadable line: %.300s", self.run_info.run_id, error)
            return (_item(ItemKind.EVENT, unreadable(line, error), EventType.UNSTORABLE),)
        return (Item(kind=ItemKind(said.kind), type=said.type, payload=payload, ts=said.ts),)

    def _keep(self, payload: Mapping[str, Any]) -> None:
        self._said = Said(
            outcome=Outcome(payload["outcome"]),
            error=said_text(payload.get("error")),
            cause=said_text(payload.get("cause")),
        )

    async def _end(self, ending: Ending | None) -> None:
        """``exited`` frees the slot, ``end`` concludes. Without an ending nothing was started."""
        exited = _exited(ending)
        await self._commit([_item(ItemKind.EXITED, exited)])
        end = {
            "outcome": Outcome.STOPPED if ending is None else self._said.outcome,
            "error": self._said.error,
            "cause": self._said.cause,
            "stop_reason": self._stop,
            "stopped_in_time": ending is None or ending.stopped_in_time,
            "exit_code": exited["exit_code"],
            "signal": exited["signal"],
            "out_of_memory": exited["out_of_memory"],
            "grace_s": self._grace_s,
        }
        await self._commit([_item(ItemKind.END, end)])

    async def _give_up(self, error: Exception) -> None:
        """Kill what is there, and close the run with what is known."""
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        ending = None
        if self._process is not None:
            await self._process.kill()
            ending = await self._process.ended()
        lost = isinstance(error, CodefyError) and error.code == "run.process_lost"
        said = Said(
            outcome=Outcome.FAILED,
            error=str(error) or type(error).__name__,
            cause=Cause.USER_CODE if lost else Cause.SIGNAL,
        )
        if self._said.outcome is None:
            self._said = said
        if ending is None:
            ending = Ending(
                exit_code=None,
                signal=None,
                out_of_memory=False,
                peak_memory_bytes=None,
                stderr_tail=(),
                stopped_in_time=True,
            )
        try:
            await self._end(ending)
        except Exception:
            self._around.log.exception("run %s can't be closed", self.run_info.run_id)
            await self._around.abandoned(self.run_info.run_id, said.error or "")

    async def _commit(self, items: Sequence[Item], size: int = 0) -> None:
        """Numbered and folded. Waits for as long as the database can't be written."""
        batch = Batch(
            run_id=self.run_info.run_id,
            attempt=self.run_info.attempt,
            first=self._seq + 1,
            items=items,
            size=size,
        )
        while True:
            try:
                answer = await self._around.fold.take_in(batch)
            except CodefyError as error:
                if error.code not in PASSING:
                    raise
                await self._around.clock.delay(RETRY_S)
                continue
            assert not isinstance(answer, Gap)
            self._seq += len(items)
            return


class OwnRuns:
    """All runs that execute here."""

    def __init__(
        self,
        *,
        fold: Fold,
        starter: RunStarter,
        install: Install,
        settings: ControlSettings,
        clock: AttentiveClock,
        log: logging.Logger,
        devices: Callable[[], Sequence[DeviceInfo]],
        abandoned: Callable[[str, str], Awaitable[None]],
        outputs: OutputStore,
    ) -> None:
        self.outputs = outputs
        self.fold = fold
        self.starter = starter
        self.clock = clock
        self.log = log
        self.folders = install.folders()
        self.abandoned = abandoned
        self._install = install
        self._settings = settings
        self._devices = devices
        self._executions: dict[str, Execution] = {}

    def begin(self, run: OwnRun) -> Execution:
        """Take a run whose attempt is committed; ``run`` of the answer is to be awaited by its owner."""
        execution = Execution(run, self)
        self._executions[run.run_id] = execution
        return execution

    def forget(self, run_id: str) -> None:
        self._executions.pop(run_id, None)

    def get(self, run_id: str) -> Execution | None:
        return self._executions.get(run_id)

    def all(self) -> Sequence[Execution]:
        return list(self._executions.values())

    def launch(self, run: OwnRun) -> Launch:
        return Launch(
            run_id=run.run_id,
            attempt=run.attempt,
            work_dir=self._install.base,
            env={
                **environment_of_runs(self._settings),
                "CUDA_VISIBLE_DEVICES": visible(run.devices, self._devices()),
            },
            writes_for_s=WRITES_FOR_S if run.records_outputs else None,
        )

    def go(self, run: OwnRun) -> Go:
        return Go(
            run_id=run.run_id,
            attempt=run.attempt,
            document=run.document,
            options=run.options,
            device=narrowed(run.devices),
            devices=run.devices,
            folders=folder_spec(self._install),
            record=record_spec(self.outputs) if run.records_outputs else None,
            plugins_block=self._settings.plugins_block,
            plugins_only=self._settings.plugins_only,
        )


def visible(devices: Sequence[str], known: Sequence[DeviceInfo]) -> str:
    """``CUDA_VISIBLE_DEVICES`` for a run: the cards that it was given, by UUID where one is known."""
    uuids = {info.device: info.uuid for info in known if info.uuid}
    cards = [device for device in devices if kind_of(device) == "cuda"]
    return ",".join(uuids.get(card, card.partition(":")[2] or "0") for card in cards)


def narrowed(devices: Sequence[str]) -> str:
    """The device that nodes compute on, as its process sees it: the first card that it was given is cuda:0."""
    first = devices[0] if devices else "cpu"
    return {"cuda": "cuda:0", "mps": "mps"}.get(kind_of(first), "cpu")


def own_artifact(payload: Mapping[str, Any], folders: Folders) -> dict[str, Any]:
    """An ``artifact`` event of an own run, with its place below the server's folders, its size and its time, by which
    it is known to be the same file later. Looks at the disk: to be called in a thread.
    """
    path = payload.get("path")
    if not isinstance(path, str):
        return dict(payload)
    place = Path(path)
    found = place.stat() if place.is_file() else None
    return dict(payload) | {
        "backend": "local",
        "relative_path": folders.relative(place),
        "size_bytes": None if found is None else found.st_size,
        "data": None if found is None else {"mtime_ns": found.st_mtime_ns},
    }


def _item(kind: ItemKind, payload: Mapping[str, Any], type_: str | None = None) -> Item:
    return Item(kind=kind, type=type_, payload=dict(payload))


def _exited(ending: Ending | None) -> dict[str, Any]:
    if ending is None:
        return {"exit_code": None, "signal": None, "out_of_memory": False}
    return {
        "exit_code": ending.exit_code,
        "signal": ending.signal,
        "out_of_memory": ending.out_of_memory,
        "peak_memory_bytes": ending.peak_memory_bytes,
        "stderr_tail": ending.stderr_tail,
    }
