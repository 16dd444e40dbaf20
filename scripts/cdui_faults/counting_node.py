"""The nodes of a schedule's runs: they count, and note in a file of their own what they are about to tell or write.

A plain file in the folder of one's own nodes: it is copied there.
"""

import hashlib
import json
import os
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from codefyui_core.plugin import DataType, Family, Node, NodeContext, Param, ParamKind, Port


class Count(Node):
    """Emits 0 .. n-1 as metric ``count``. Each number is in the journal before it is told."""

    type = "FaultsCount"
    category = "Faults"
    outputs = (Port(name="value", type=DataType.SCALAR),)
    params: ClassVar[Sequence[Param]] = (
        Param(name="journal", kind=ParamKind.STRING, default=""),
        Param(name="n", kind=ParamKind.INT, default=100, minimum=0),
        Param(name="pause_ms", kind=ParamKind.FLOAT, default=0.0, minimum=0),
        Param(name="ending", kind=ParamKind.SELECT, default="return", options=("return", "raise", "exit")),
        Param(name="deaf", kind=ParamKind.BOOL, default=False),
    )
    cacheable = False

    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        journal = os.open(Path(params["journal"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(journal, f"start {os.getpid()}\n".encode())
        files = self.work(params, context, journal)
        for step in range(params["n"]):
            if context.should_stop() and not params["deaf"]:
                os.write(journal, b"stopped\n")
                return {"value": float(step), "__interrupted__": True}
            os.write(journal, f"{step}\n".encode())
            context.metric("count", float(step), step)
            if step % 100 == 0:
                print(f"at {step}", flush=True)
            files.at(step)
            time.sleep(params["pause_ms"] / 1000)
        files.last()
        os.write(journal, b"done\n")
        if params["ending"] == "raise":
            raise ValueError("it went wrong on purpose")
        if params["ending"] == "exit":
            os._exit(3)
        return {"value": float(params["n"])}

    def work(self, params: Mapping[str, Any], context: NodeContext, journal: int) -> "NoFiles":
        return NoFiles()


class NoFiles:
    """What a run does with files: nothing."""

    def at(self, step: int) -> None:
        """After it told that number."""

    def last(self) -> None:
        """Before it is through."""


class CountWithFiles(Count):
    """Reads an upload first, records checkpoints on its way, and leaves further files at its end."""

    type = "FaultsFiles"
    params: ClassVar[Sequence[Param]] = (
        *Count.params,
        Param(name="label", kind=ParamKind.STRING, default="", path="writes", family="models"),
        Param(name="input", kind=ParamKind.DATA_FILE, default=""),
        Param(name="plan", kind=ParamKind.STRING, default="{}"),
    )

    def work(self, params: Mapping[str, Any], context: NodeContext, journal: int) -> NoFiles:
        return Files(params, context, journal)


class Files(NoFiles):
    """Of one run, by its plan. Each file is in the journal before it is written, and again when it is there."""

    def __init__(self, params: Mapping[str, Any], context: NodeContext, journal: int) -> None:
        self._label = params["label"]
        self._context = context
        self._journal = journal
        self._plan: dict[str, Any] = json.loads(params["plan"])
        sizes = self._plan["checkpoints"]
        self._due = {params["n"] * number // (len(sizes) + 1): number for number in range(1, len(sizes) + 1)}
        found = context.input_file(Family.FILES, params["input"])
        self._note("read", params["input"], hashlib.sha256(found.read_bytes()).hexdigest())

    def at(self, step: int) -> None:
        number = self._due.get(step)
        if number is None:
            return
        size = self._plan["checkpoints"][number - 1]
        self._write(Family.MODELS, f"{self._label}/step-{number}.bin", size, record=True)
        if self._plan["latest"]:
            self._write(
                Family.MODELS, f"{self._label}/latest.bin", size + number, record=True, version=number
            )

    def last(self) -> None:
        for number, size in enumerate(self._plan["outputs"], 1):
            self._write(Family.OUTPUT, f"{self._label}/output-{number}.bin", size, record=False)
        if self._plan["shared"]:
            self._write(Family.MODELS, "best.bin", 5000, record=False)
        if self._plan["folder"]:
            for number in (1, 2):
                self._write(Family.OUTPUT, f"{self._label}/logs/events-{number}", 3000 * number, record=False)
            self._context.artifact(
                "tensorboard", self._context.output_file(Family.OUTPUT, f"{self._label}/logs/x").parent
            )

    def _write(self, family: Family, name: str, size: int, *, record: bool, version: int = 0) -> None:
        """As a careful program does: beside its name, and renamed; synced before if the plan says so."""
        data = random.Random(f"{self._label} {name} {version}").randbytes(size)
        digest = hashlib.sha256(data).hexdigest()
        self._note("writes", f"{family.value}/{name}", digest)
        path = self._context.output_file(family, name)
        beside = path.with_name(f"{path.name}.tmp")
        with beside.open("wb") as file:
            file.write(data)
            if self._plan["sync"]:
                file.flush()
                os.fsync(file.fileno())
        beside.replace(path)
        if record:
            self._context.artifact("checkpoint", path, {"sha256": digest})
        self._note("wrote", f"{family.value}/{name}", digest)

    def _note(self, *words: str) -> None:
        os.write(self._journal, f"{' '.join(words)}\n".encode())
