"""Nodes that do one thing each, for tests of whole systems: wait, count, crash, end, eat memory, fork."""

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codefyui_core.plugin import DataType, Node, NodeContext, Param, ParamKind, Port


class Hold(Node):
    """Waits until a file is there, and ends early when asked to."""

    type = "TrialHold"
    category = "Trial"
    outputs = (Port(name="value", type=DataType.SCALAR),)
    params = (
        Param(name="file", kind=ParamKind.STRING, default=""),
        Param(name="deaf", kind=ParamKind.BOOL, default=False),
    )
    cacheable = False

    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        print(f"holding in {os.getpid()}", flush=True)
        context.metric("holding", 1.0, 0)
        while not Path(params["file"]).exists():
            if context.should_stop() and not params["deaf"]:
                return {"value": 0.0, "__interrupted__": True}
            time.sleep(0.02)
        return {"value": 1.0}


class Count(Node):
    """Emits numbered metrics, a pause after each when asked to."""

    type = "TrialCount"
    category = "Trial"
    outputs = (Port(name="value", type=DataType.SCALAR),)
    params = (
        Param(name="n", kind=ParamKind.INT, default=100, minimum=0),
        Param(name="pause_ms", kind=ParamKind.FLOAT, default=0.0, minimum=0),
    )
    cacheable = False

    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        for step in range(params["n"]):
            if context.should_stop():
                return {"value": float(step), "__interrupted__": True}
            context.metric("count", float(step), step)
            if params["pause_ms"]:
                time.sleep(params["pause_ms"] / 1000)
        return {"value": float(params["n"])}


class End(Node):
    """Ends its own process in a way."""

    type = "TrialEnd"
    category = "Trial"
    outputs = (Port(name="value", type=DataType.SCALAR),)
    params = (
        Param(
            name="how",
            kind=ParamKind.SELECT,
            default="raise",
            options=("raise", "abort", "exit", "kill", "memory", "strays", "stderr"),
        ),
    )
    cacheable = False

    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        match params["how"]:
            case "raise":
                raise ValueError("it went wrong on purpose")
            case "abort":
                os.abort()
            case "exit":
                os._exit(3)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "memory":
                return {"value": float(len(bytearray(1 << 62)))}
            case "stderr":
                print("the last words", file=sys.stderr, flush=True)
                os._exit(4)
            case "strays":
                _stray()
        return {"value": 1.0}


def _stray() -> None:
    """A grandchild in a session of its own that would sleep for ten minutes."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    os.wait()


class ReadSecret(Node):
    """Tells how long its secret is, and not the secret."""

    type = "TrialSecret"
    category = "Trial"
    outputs = (Port(name="value", type=DataType.SCALAR),)
    params = (Param(name="key", kind=ParamKind.SECRET, default=""),)
    cacheable = False

    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        context.metric("length", float(len(params["key"])), 0)
        return {"value": float(len(params["key"]))}


class ReadFile(Node):
    """Prints a text file that a plain path names."""

    type = "TrialReadFile"
    category = "Trial"
    outputs = (Port(name="text", type=DataType.STRING),)
    params = (Param(name="path", kind=ParamKind.STRING, default="", path="reads"),)
    cacheable = False

    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        text = context.input_path(params["path"]).read_text(encoding="utf-8")
        context.log(text.splitlines()[0])
        return {"text": text}


class SaveText(Node):
    """Writes a small file into the models folder and records it."""

    type = "TrialSave"
    category = "Trial"
    outputs = (Port(name="text", type=DataType.STRING),)
    params = (Param(name="name", kind=ParamKind.STRING, default="trial.bin", path="writes", family="models"),)
    cacheable = False

    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        from codefyui_core.plugin import Family

        path = context.output_file(Family.MODELS, params["name"])
        path.write_bytes(b"trial")
        context.artifact("export", path)
        return {"text": str(path)}


class Note(Node):
    """Writes into the models folder without saying so, which runs that declare no files may do on any worker."""

    type = "TrialNote"
    category = "Trial"
    outputs = (Port(name="text", type=DataType.STRING),)
    params = (Param(name="name", kind=ParamKind.STRING, default="note.bin"),)
    cacheable = False

    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        from codefyui_core.plugin import Family

        path = context.output_file(Family.MODELS, params["name"])
        path.write_bytes(b"note")
        return {"text": str(path)}
