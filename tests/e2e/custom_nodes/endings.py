"""Nodes that end badly for one reason each, or keep the machine busy, for tests of endings."""

import ctypes
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codefyui_core.plugin import DataType, Node, NodeContext, Param, ParamKind, Port


class Fails(Node):
    """Fails in the way that is asked for, with the real error of each."""

    type = "TrialFails"
    category = "Trial"
    outputs = (Port(name="value", type=DataType.SCALAR),)
    params = (
        Param(
            name="how",
            kind=ParamKind.SELECT,
            default="raise",
            options=("raise", "exit", "term", "kill", "card_memory", "memory", "disk"),
        ),
    )
    cacheable = False

    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        print(f"the last words of {params['how']}", file=sys.stderr, flush=True)
        match params["how"]:
            case "exit":
                os._exit(3)
            case "term":
                os.kill(os.getpid(), signal.SIGTERM)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "card_memory":
                import torch

                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
            case "memory":
                bytearray(1 << 62)
            case "disk":
                Path("/dev/full").write_bytes(b"no room")
        raise ValueError("it went wrong on purpose")


class HoldsAll(Node):
    """Spins on every core, and holds the interpreter in C, until a file is there."""

    type = "TrialHoldsAll"
    category = "Trial"
    outputs = (Port(name="value", type=DataType.SCALAR),)
    params = (Param(name="file", kind=ParamKind.STRING, default=""),)
    cacheable = False

    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        spinners = [_spinner() for _ in range(2 * (os.cpu_count() or 1))]
        print(f"holding in {os.getpid()}", flush=True)
        context.metric("holding", 1.0, 0)
        usleep = ctypes.PyDLL(None).usleep
        while not Path(params["file"]).exists():
            usleep(500_000)
        for pid in spinners:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return {"value": 1.0}


def _spinner() -> int:
    pid = os.fork()
    if pid == 0:
        while True:
            pass
    return pid
